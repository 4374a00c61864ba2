// Orders what the site's search finds: symptoms first, pages for users, then those that list all.
var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    if (page === "docs/troubleshooting") return score + 4;
    if (/^(CHANGELOG|CONTRIBUTING|bench\/|docs\/(architecture|bench|softgpu|shim)$)/.test(page)) return score - 9;
    if (/^docs\/(errors|flags|settings|index)$/.test(page)) return score - 3;
    return score;
  },
  // As Sphinx has them.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
