// Side files may be damaged, or of another report: what the reader relies on is checked on arrival.

const isText = (one) => typeof one === "string";
const isNumbers = (list) => Array.isArray(list) && list.every((one) => typeof one === "number");
const isFacts = (list) => Array.isArray(list) && list.every((one) => one === null || typeof one === "number");
const COLUMNS = ["q", "t", "file", "cut", "tokens", "seconds", "bits", "ratio", "a", "b", "c", "log_a", "log_b", "log_c"];

function soundCodes(column, length) {
  return Array.isArray(column?.values) && isNumbers(column.codes) && column.codes.length === length
    && column.values.every((one) => one === null || isText(one))
    && column.codes.every((code) => code < column.values.length);
}

// Numbers of all attempts of a model: as many in each column, of questions that there are.
function soundIndex(index, questions) {
  const length = index?.q?.length;
  if (!COLUMNS.every((name) => isFacts(index?.[name]) && index[name].length === length)) return false;
  const words = ["outcome", "box", "layer", "reason", ...(index.answer === undefined ? [] : ["answer"])];
  return index.q.every((q) => Number.isInteger(q) && q >= 0 && q < questions)
    && isNumbers(index.t) && isNumbers(index.file)
    && words.every((name) => soundCodes(index[name], length))
    && isFacts(index.prompt_bits) && index.prompt_bits.length === questions
    && Array.isArray(index.gold) && index.gold.length === questions
    && Array.isArray(index.rubrics) && index.rubrics.every((rubric) => isText(rubric?.title)
      && isNumbers(rubric.codes) && rubric.codes.length === length
      && Array.isArray(rubric.names) && rubric.names.every(isText) && Array.isArray(rubric.weights)
      && rubric.codes.every((code) => code < rubric.names.length));
}

// Texts by row, with [start, end, tree] of each expression and a length and a letter a token.
function soundTexts(texts) {
  return Array.isArray(texts?.trees) && typeof texts.rows === "object" && texts.rows !== null
    && Object.values(texts.rows).every((row) => isNumbers(row?.spans) && isText(row.levels)
      && (isText(row.text) || (isText(row.problem) && isText(row.prompt)))
      && (row.lengths === null || (isNumbers(row.lengths) && row.lengths.length === row.levels.length))
      && (!row.answer || isNumbers(row.answer)));
}
