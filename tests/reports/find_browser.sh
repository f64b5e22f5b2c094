# Sourced by tests of pages: sets `chromium`, or ends with 77 (skipped) without Chromium or Node.js.
chromium=$(command -v chromium || command -v chromium-browser || true)
if [ -z "$chromium" ] || ! command -v node > /dev/null; then
  echo "skipped: chromium or node is missing (Debian packages chromium, nodejs)"
  exit 77
fi
