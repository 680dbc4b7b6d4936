package answer_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/answer"
)

func TestFields(t *testing.T) {
	h := http.Header{"Vary": {"Origin", "Accept"}}
	var f answer.Fields
	f.Wrap(h)
	assert.Equal(t, "Origin, Accept", f.Get("Vary"))
	assert.Empty(t, f.Get("Retry-After"))

	want := http.Header{"Vary": {"Origin", "Accept"}}
	for i := range 10 { // more than there is room for in place
		name, value := "X-"+strconv.Itoa(i), strconv.Itoa(i)
		f.Set(name, value)
		assert.Equal(t, value, f.Get(name))
		want[name] = []string{value}
	}
	assert.Equal(t, want, h)

	// Others may go on with the header as with any.
	for i := range 10 {
		name := "X-" + strconv.Itoa(i)
		h.Add(name, "more")
		want[name] = append(want[name], "more")
	}
	h["X-3"][0], want["X-3"][0] = "edited", "edited"
	f.Set("X-5", "again")
	want["X-5"] = []string{"again"}
	assert.Equal(t, want, h)
}

func TestFieldsTakeLittleMemory(t *testing.T) {
	h := http.Header{}
	f := new(answer.Fields)
	names := []string{"A", "B", "C", "D", "E", "F", "G"}
	for n, want := range map[int]float64{3: 0, 7: 1} {
		assert.Equal(t, want, testing.AllocsPerRun(100, func() {
			clear(h)
			*f = answer.Fields{}
			f.Wrap(h)
			for _, name := range names[:n] {
				f.Set(name, "value")
			}
		}), "%d fields", n)
	}
}
