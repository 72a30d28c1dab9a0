/** Shows an error if a file of the page cannot be loaded, because then no module runs. */
addEventListener(
  "error",
  ({ target }) => {
    // A plain script, because modules do not run in this case.
    if (!(target instanceof HTMLScriptElement) || target.type !== "module") return;
    const again = document.createElement("button");
    again.className = "button";
    again.textContent = "Load the page again";
    again.addEventListener("click", () => location.reload());
    const note = document.createElement("p");
    note.className = "note bad";
    note.setAttribute("role", "alert");
    note.append("A file of this page could not be loaded. ", again);
    document.getElementById("app").append(note);
  },
  true, // capture, because error events of elements do not bubble
);
