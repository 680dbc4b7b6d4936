package preview_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/preview"
	"github.com/weir-go/weir/core"
)

// A text that cannot be used has mistakes, each at the characters that are wrong.
func TestCheckMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		draft preview.Draft
		marks []string // what is marked; "" for the text as a whole or its end
		says  string
	}{
		{preview.Draft{Text: "5 per minute"}, []string{"per"}, `expected "/" and a period`},
		{preview.Draft{Text: "100/1m burts 20"}, []string{"burts"}, "burst"},
		{preview.Draft{Text: "100/"}, []string{""}, "period"},
		{preview.Draft{Text: "ü: 5/1m"}, []string{"ü"}, "expected a name"},
		{preview.Draft{Text: "5/1m, 10/400d, 7/1d burst 2 sliding-log"}, []string{"10/400d", "7/1d burst 2 sliding-log"}, ""},
		{preview.Draft{Text: "5/1m, 10/1h; wait 400d"}, []string{"wait"}, "Wait is"},
		{preview.Draft{Text: "5/1m sliding-log; wait 1s"}, []string{"5/1m sliding-log"}, ""},
		{preview.Draft{Text: "5/1m; fail open; epoch 9999999999"}, nil, ""},
		{preview.Draft{Text: "100/1h; fail open", Now: "api: 100/1h", For: preview.ForTier}, []string{""}, "only the numbers may differ"},
		{preview.Draft{Text: "blocked", Now: "api: 100/1h", For: preview.ForTier}, []string{"blocked"}, ""},
		{preview.Draft{Text: "", Now: "api: 100/1h", For: preview.ForTier}, []string{""}, ""},
		{preview.Draft{Text: "unlimited"}, []string{"unlimited"}, ""},
		{preview.Draft{Text: "5/1m", Now: "no policy", For: preview.ForKey}, []string{""}, "what its processes say of themselves"},
	} {
		got := preview.Check(c.draft)
		assert.Nil(t, got.Words, c.draft.Text)
		require.NotEmpty(t, got.Mistakes, c.draft.Text)
		var says []string
		for i, m := range got.Mistakes {
			require.NotEmpty(t, m.Problem, c.draft.Text)
			assert.NotContains(t, m.Problem, "core:", c.draft.Text)
			says = append(says, m.Problem)
			if c.marks != nil {
				require.Less(t, i, len(c.marks), "%s: %v", c.draft.Text, got.Mistakes)
				assert.True(t, begins(c.draft.Text, m, c.marks[i]), "%s: %v", c.draft.Text, m)
			}
		}
		assert.Contains(t, strings.Join(says, "\n"), c.says, c.draft.Text)
	}
}

// begins reports whether a mistake is at the beginning of a part of the text, or at none if the part is "".
func begins(text string, m preview.Mistake, part string) bool {
	runes := []rune(text)
	if m.Column == 0 || m.Column > len(runes) {
		return part == ""
	}
	return part != "" && strings.HasPrefix(string(runes[m.Column-1:]), part)
}

// A text that can be used is explained.
func TestCheckWords(t *testing.T) {
	t.Parallel()
	got := preview.Check(preview.Draft{Policy: "api", Text: "api: 200/1m; fail closed"})
	require.Empty(t, got.Mistakes)
	assert.Equal(t, "api: 200/1m; fail closed", got.Words.Text)
	assert.Equal(t, int64(200), got.Words.AtOnce)
	assert.Equal(t, preview.Checked{}, preview.Check(preview.Draft{Text: ""}))
	got = preview.Check(preview.Draft{Text: "7/1s", Now: "50/1m; shadow", For: preview.ForKey})
	require.Empty(t, got.Mistakes)
	assert.Contains(t, got.Words.Text, "shadow", "a key has the options that the policy has now")
	for _, text := range []string{"unlimited", "blocked"} {
		assert.Equal(t, preview.Checked{}, preview.Check(preview.Draft{Text: text, Now: "100/1m", For: preview.ForKey}))
	}
}

// A picture rises, from the beginning to its end.
func TestPictures(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]int64{ // units at the beginning, after half a period, one, one and a half, two
		"100/10s":                                    {100, 150, 200, 250, 300},
		"100/10s burst 20":                           {20, 70, 120, 170, 220},
		"1000/10s burst 1":                           {1, 501, 1001, 1501, 2001},
		"100/10s debt 50":                            {150, 200, 250, 300, 350},
		"100/10s token-bucket":                       {100, 100, 200, 200, 300},
		"100/10s token-bucket burst 20":              {20, 20, 40, 40, 60},
		"100/10s leaky-bucket":                       {1, 51, 101, 151, 201},
		"100/10s fixed-window":                       {100, 100, 200, 200, 300},
		"100/10s fixed-window aligned":               {100, 200, 200, 300, 300},
		"100/1d fixed-window calendar Europe/Berlin": {100, 200, 200, 300, 300},
		"100/10s sliding-log":                        {100, 100, 200, 200, 300},
		"100/10s sliding-window buckets 5":           {100, 100, 100, 200, 200},
		"100/10s sliding-counter":                    {100, 100, 100, 150, 200},
		"100/10s, 120/100s":                          {100, 126, 132, 138, 144},
		"2147483648/1ms":                             nil,
		"2147483648/1ms, 2147483648/366d":            nil,
		"1/366d":                                     {1, 1, 2, 2, 3},
		"5 concurrent, 10/1s":                        {10, 15, 20, 25, 30},
	} {
		got := preview.Check(preview.Draft{Text: text})
		require.Len(t, got.Pictures, len(got.Words.Within), text)
		for i, pic := range got.Pictures {
			assert.Equal(t, got.Words.Within[i].Most, pic.Most, text)
			assert.Equal(t, pic.Period*5/2, pic.Span)
			assert.Zero(t, pic.Points[0].At)
			assert.Positive(t, pic.Points[0].Units)
			assert.LessOrEqual(t, len(pic.Points), 200)
			assert.Equal(t, pic.Span, pic.Points[len(pic.Points)-1].At, text)
			for j := 1; j < len(pic.Points); j++ {
				assert.Less(t, pic.Points[j-1].At, pic.Points[j].At, text)
				assert.LessOrEqual(t, pic.Points[j-1].Units, pic.Points[j].Units, text)
			}
		}
		for i, units := range want {
			assert.Equal(t, units, at(got.Pictures[0], time.Duration(i)*got.Pictures[0].Period/2), "%s after %d halves", text, i)
		}
	}
	// Twenty in each second are a thousand within a minute.
	both := preview.Check(preview.Draft{Text: "20/1s, 1000/1h"}).Pictures
	require.Len(t, both, 2)
	assert.Equal(t, int64(1025), at(both[1], 90*time.Second))
	assert.Empty(t, preview.Check(preview.Draft{Text: "20 concurrent"}).Pictures)
}

// A caller that asks for all there is at each instant of a picture, and often in between, gets just that.
func TestPicturesAreTrue(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"10/10s", "10/10s burst 3", "10/10s burst 30", "10/10s debt 4", "7/10s", "10/10s token-bucket", "10/10s token-bucket burst 3", "10/10s token-bucket burst 30",
		"10/10s token-bucket debt 4", "10/10s leaky-bucket", "10/10s leaky-bucket burst 3", "10/10s fixed-window", "10/10s fixed-window aligned",
		"60/1m fixed-window calendar UTC", "24/1d fixed-window calendar Asia/Kolkata", "10/10s sliding-window", "10/10s sliding-window buckets 3",
		"10/10s sliding-window buckets 1", "10/10s sliding-counter", "10/10s sliding-log", "1/1h sliding-log",
	} {
		p := core.MustParse("p: " + text)
		pic := preview.Check(preview.Draft{Text: text}).Pictures[0]
		l := p.Limits()[0]
		began := int64(epoch - epoch%3_600_000_000)
		take := core.Take{Policy: p, Key: "k", Cost: core.MaxRate, AtMost: true, Debt: true}
		if l.Align != "" { // the middle of a window
			take.Now = began
			res, _, _ := p.Spec().Step(nil, take)
			began += (res.ResetAfter - pic.Period/2).Microseconds()
		}
		moments := []time.Duration{}
		for i := range 3000 {
			moments = append(moments, pic.Span*time.Duration(i)/3000)
		}
		for _, point := range pic.Points {
			moments = append(moments, point.At)
		}
		slices.Sort(moments)
		var state []byte
		sum := int64(0)
		for _, after := range moments {
			if after == pic.Span {
				continue
			}
			take.Now = began + after.Microseconds()
			res, next, ttl := p.Spec().Step(state, take)
			if ttl > 0 {
				state = next
			}
			sum += res.Taken
			shown := at(pic, after)
			if l.Algorithm == core.LeakyBucket { // which lets in what leaves later
				assert.LessOrEqual(t, shown, sum, "%s after %v", text, after)
				assert.LessOrEqual(t, sum, shown+l.Burst, "%s after %v", text, after)
				continue
			}
			isPoint := slices.ContainsFunc(pic.Points, func(p preview.Point) bool { return p.At == after })
			if isPoint {
				assert.InDelta(t, shown, sum, 1, "%s after %v", text, after) // parts of a microsecond
			} else {
				assert.LessOrEqual(t, shown, sum+1, "%s after %v", text, after)
			}
		}
	}
}

// at returns the units at a time.
func at(pic preview.Picture, after time.Duration) (units int64) {
	for _, p := range pic.Points {
		if p.At <= after {
			units = p.Units
		}
	}
	return units
}

// Whatever somebody types, the places of its mistakes are in the text.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{"5/1m", "ü/1", "a:b,c;d", "5/1m,,;;::", "1/1s, 0/1s, 0/2s; wait 400d; epoch 9999999999", "5/1m sliding-log; wait 1s"} {
		f.Add(text, uint8(0))
	}
	f.Fuzz(func(t *testing.T, text string, kind uint8) {
		d := preview.Draft{Policy: "api", Text: text, For: preview.Kind(kind % 3)}
		for _, d.Now = range []string{"", "100/1m"} {
			got := preview.Check(d)
			for _, m := range got.Mistakes {
				if m.Column < 0 || m.Column > utf8.RuneCountInString(text)+1 {
					t.Fatalf("%q: %+v", text, m)
				}
			}
			if got.Words != nil && len(got.Mistakes) > 0 {
				t.Fatal("words and mistakes")
			}
		}
	})
}
