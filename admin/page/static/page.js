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

// Puts the code of a link, which stands in its fragment so that no server sees it, into the form, and out of the address.
document.addEventListener("DOMContentLoaded", () => {
  "use strict";
  const field = document.getElementById("secret");
  if (!field || location.hash.length < 2) return;
  field.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  field.form.querySelector("button").focus();
});
