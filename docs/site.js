// What scrolls can be reached by the keyboard, and every toolbar of a code block has a name of its own.
const complete = () => {
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((table) => {
    table.tabIndex = 0;
    table.setAttribute("role", "region");
    table.setAttribute("aria-label", `Table ${[...document.querySelectorAll(".md-typeset__scrollwrap")].indexOf(table) + 1}`);
  });
  document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((bar) => {
    bar.setAttribute("aria-label", `Code ${[...document.querySelectorAll(".md-code__nav")].indexOf(bar) + 1}`);
  });
};
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
complete();
