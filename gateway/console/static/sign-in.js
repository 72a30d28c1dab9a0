/** The sign-in form for an API key, an access token or the printed token. */
import { post } from "./api.js";
import { html, useEffect, useRef, useState } from "./components.js";

export function SignIn({ onSignedIn, problem: given = "" }) {
  // Not kept in the state, so that the key exists only in its field.
  const field = useRef(null);
  const [problem, setProblem] = useState(given);
  const [busy, setBusy] = useState(false);
  const [hasIssuers, setHasIssuers] = useState(false);
  useEffect(() => {
    fetch("../sign-in/browser", { headers: { Accept: "application/json" } })
      .then((response) => response.ok && response.json())
      .then((found) => setHasIssuers(Boolean(found?.issuers?.length)))
      .catch(() => {});
  }, []);
  useEffect(() => field.current.focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await post("session", { token: field.current.value.trim() });
      onSignedIn();
    } catch (error) {
      setProblem(error.message);
      field.current?.select();
    }
    setBusy(false);
  };
  return html`<header class="top"><span class="brand">mcp-gateway</span></header>
    <main class="main sign-in" id="main">
      <form class="card" onSubmit=${submit}>
        <h1 tabindex="-1">Sign in</h1>
        <p>Use an API key or token with the scope of the console. Without <code>auth</code>, use the token in the line that the
          gateway printed at its start.</p>
        <label for="token">Key or token</label>
        <input id="token" ref=${field} type="password" autocomplete="current-password" required
          aria-describedby=${problem ? "token-problem" : null} aria-invalid=${String(Boolean(problem))} />
        ${problem && html`<p id="token-problem" class="note bad" role="alert">${problem}</p>`}
        <button class="button primary" disabled=${busy}>Sign in</button>
        ${hasIssuers && html`<p><a href="../sign-in/browser?back=console/">Sign in with your identity provider</a></p>`}
      </form>
    </main>`;
}
