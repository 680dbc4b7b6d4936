package api

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/admin/manage"
)

// Tags are compared strongly: RFC 9110, 8.8.3.2 and 13.1.1.
func TestStrong(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]struct {
		revisions []int64
		ok        bool
	}{
		`"7"`: {[]int64{7}, true}, `"7", "8"`: {[]int64{7, 8}, true}, `"7","8" ,, "9"`: {[]int64{7, 8, 9}, true},
		`W/"7"`: {nil, true}, `W/"7", "8"`: {[]int64{8}, true}, `"abc"`: {nil, true}, `""`: {nil, true},
		`"07"`: {nil, true}, `"-7"`: {nil, true}, `"0"`: {nil, true}, `"7,8"`: {nil, true}, `"99999999999999999999"`: {nil, true},
		``: {nil, false}, `7`: {nil, false}, `"7`: {nil, false}, `7"`: {nil, false}, `"7" "8"`: {nil, false}, `w/"7"`: {nil, false},
		`"7", *`: {nil, false}, `*, "7"`: {nil, false}, `"a b"`: {nil, false}, `,`: {nil, false}, `W/ "7"`: {nil, false}, "\"\x7f\"": {nil, false},
	} {
		revisions, ok := strong(list)
		assert.Equal(t, want.ok, ok, list)
		assert.Equal(t, want.revisions, revisions, list)
	}
}

func FuzzStrong(f *testing.F) {
	f.Add(`"7", W/"8"`)
	f.Fuzz(func(t *testing.T, list string) {
		revisions, ok := strong(list)
		for _, n := range revisions {
			if n < 1 || !ok {
				t.Errorf("%q: %d, %v", list, n, ok)
			}
		}
	})
}

// Of several tags, the one that holds counts; a list without it is stale.
func TestConditions(t *testing.T) {
	t.Parallel()
	now := func(context.Context) (int64, error) { return 8, nil }
	for c, want := range map[Condition]manage.Write{
		{}:                      {},
		{IfMatch: "*"}:          {Any: true},
		{IfMatch: `"7"`}:        {Revision: 7},
		{IfMatch: `"7", "8"`}:   {Revision: 8},
		{IfMatch: `"7", "9"`}:   {Revision: manage.NoRevision},
		{IfMatch: `W/"8"`}:      {Revision: manage.NoRevision},
		{IfMatch: `W/"8", "x"`}: {Revision: manage.NoRevision},
		{IfNoneMatch: "*"}:      {Create: true},
	} {
		got, err := c.expect(t.Context(), now)
		assert.NoError(t, err, c)
		assert.Equal(t, want, got, c)
	}
	for _, c := range []Condition{{IfMatch: "7"}, {IfMatch: `"7"`, IfNoneMatch: "*"}, {IfNoneMatch: `"7"`}, {IfMatch: "*, *"}} {
		_, err := c.expect(t.Context(), now)
		assert.Equal(t, 400, manage.Problem(err).Status, c)
	}
}
