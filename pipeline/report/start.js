// Everything is defined: show what the address names.

setTheme(THEMES.includes(stores.get("bayes-report-theme")) ? stores.get("bayes-report-theme") : "system");
window.addEventListener("hashchange", route);
route();
