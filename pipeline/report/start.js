// Everything is defined: show what the address names.

setTheme(Object.keys(THEMES).find((name) => name === stores.get("bayes-report-theme")) ?? "system");
window.addEventListener("hashchange", route);
route();
