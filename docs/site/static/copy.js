// Gives each block that a reader may paste a button that copies it.
for (const block of document.querySelectorAll(
  ["sh", "yaml", "toml", "dockerfile"].map((name) => `.highlight-${name} pre`).join(),
)) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      // Without the last line's end, a shell waits for Enter.
      await navigator.clipboard.writeText(block.textContent.trimEnd());
      button.textContent = "Copied";
    } catch {
      // A browser gives no clipboard to a page by plain HTTP.
      getSelection().selectAllChildren(block);
      button.textContent = "Selected: press Ctrl+C";
    }
  });
  block.parentElement.append(button);
}
