package redissource

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/policies"
)

// TestParseHead: what is not written by weir-admin is a mistake, and nothing at all is not.
func TestParseHead(t *testing.T) {
	t.Parallel()
	h, err := parseHead([]any{"1", "17", "abc"})
	require.NoError(t, err)
	assert.Equal(t, head{policies.Version{Generation: 1, Revision: 17}, "abc"}, h)
	_, err = parseHead([]any{nil, nil, nil})
	require.ErrorIs(t, err, errNothing)
	for _, fields := range [][]any{
		{"1", "17", nil},
		{nil, "17", "abc"},
		{"1", "", "abc"},
		{"0", "17", "abc"},
		{"1", "-17", "abc"},
		{"1", "+17", "abc"},
		{"1", "017", "abc"},
		{"1", "1e3", "abc"},
		{"1", " 17", "abc"},
		{"1", "99999999999999999999", "abc"},
	} {
		_, err := parseHead(fields)
		require.Error(t, err, "%q", fields)
		assert.NotErrorIs(t, err, errNothing, "%q", fields)
	}
}

// TestHeld: whatever Redis says in whatever order, what is in use never goes back, and the word is that of a model
// which looks at the whole history.
func TestHeld(t *testing.T) {
	t.Parallel()
	const stale = time.Minute
	begin := time.Unix(1_800_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		h := held{confirmed: begin}
		now := begin
		// The model: the greatest version with its digest, the last answer that was good, and the last that was not.
		var greatest policies.Version
		var digest string
		good, bad := begin, ""
		for range rapid.IntRange(1, 40).Draw(t, "answers") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(40*time.Second)).Draw(t, "pause")))
			version := policies.Version{
				Generation: rapid.Int64Range(1, 2).Draw(t, "generation"), Revision: rapid.Int64Range(1, 4).Draw(t, "revision"),
			}
			found := head{version, fmt.Sprint(rapid.IntRange(1, 2).Draw(t, "database"))}
			switch rapid.SampledFrom([]string{"document", "document", "absent", "failure", "unusable"}).Draw(t, "answer") {
			case "document":
				if h.compare(found) == later {
					h.taken(&policies.Document{App: "pay", Version: version}, found.digest)
				}
				h.confirm(now, found)
				switch version.Compare(greatest) {
				case 1:
					greatest, digest, good, bad = version, found.digest, now, ""
				case 0:
					if bad = ""; digest != found.digest {
						bad = "two databases"
					} else {
						good = now
					}
				case -1:
					bad = ""
				}
			case "absent":
				h.absent(now)
				if bad = ""; greatest == (policies.Version{}) {
					good = now
				}
			case "failure":
				h.failed(errors.New("no answer"))
			case "unusable":
				h.unusable(errors.New("not a document"))
				bad = "unusable"
			}
			if h.document == nil {
				require.Equal(t, policies.Version{}, greatest)
			} else {
				require.Equal(t, greatest, h.document.Version)
				require.Equal(t, digest, h.digest)
			}
			want := policies.Fleet
			switch {
			case bad != "":
				want = policies.Unread
			case now.Sub(good) > stale:
				want = policies.Stale
			case greatest == (policies.Version{}):
				want = policies.Code
			}
			word, why := h.meaning(now, stale)
			require.Equal(t, want, word)
			if word == policies.Unread || word == policies.Stale {
				require.NotEmpty(t, why)
			}
		}
	})
}
