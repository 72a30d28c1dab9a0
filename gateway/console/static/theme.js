/** Sets the chosen colour scheme before the first paint. */
try {
  const theme = localStorage.getItem("mcp-gateway-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage, the system's colour scheme is used.
}
