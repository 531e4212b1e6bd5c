/** Hands files and texts to the person. */

/**
 * @param {BlobPart} content
 * @param {string} name What it is saved as.
 */
export function hand(content, name) {
  const address = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
