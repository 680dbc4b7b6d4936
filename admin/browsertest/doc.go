// Package browsertest has the tests of the page in Debian's Chromium: what no test without a browser sees. They are
// skipped where there is no Chromium, unless WEIR_REQUIRE_CHROMIUM is 1.
//
// testdata/axe.min.js is axe-core 4.14.1 as npm has it, under the licences beside it.
package browsertest
