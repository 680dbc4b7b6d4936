// Says so when the server no longer answers, since an old page looks like a new one.
(() => {
  "use strict";
  let since = null;
  const show = () => {
    const strip = document.getElementById("silence");
    if (!strip) return;
    strip.hidden = since === null;
    strip.textContent = since === null ? "" : "The server has not answered since " + since + ": what you see is from then.";
  };
  document.addEventListener("htmx:error", () => {
    since ??= new Date().toLocaleTimeString();
    show();
  });
  document.addEventListener("htmx:after:request", () => {
    if (since === null) return;
    since = null;
    show();
  });
})();
