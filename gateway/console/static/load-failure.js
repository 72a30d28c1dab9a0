/** Says that a file of the page did not come, as when the network changes meanwhile: then no module runs. */
addEventListener(
  "error",
  ({ target }) => {
    // A plain script, without modules: it must run where those do not.
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
  true, // such an event does not bubble
);
