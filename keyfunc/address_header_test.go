package keyfunc_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/keyfunc"
)

// A header with a single address is believed from the proxies that write it, and from nobody else.
func TestAddressHeader(t *testing.T) {
	a := keyfunc.Address{Trusted: prefixes("198.51.100.0/24"), Header: "cf-connecting-ip"}
	f := a.Func()
	require.NoError(t, f.Err())
	assert.Equal(t, "forwarded-ip(198.51.100.0/24, Cf-Connecting-Ip)", f.String())
	client, err := a.Client()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		peer  string
		lines []string
		want  string
	}{
		"from the CDN":            {"198.51.100.1", []string{"203.0.113.7"}, "ip=203.0.113.7"},
		"IPv6":                    {"198.51.100.1", []string{"2001:db8::1"}, "ip=2001:db8::/64"},
		"sent directly":           {"203.0.113.9", []string{"203.0.113.7"}, "ip=203.0.113.9"},
		"missing":                 {"198.51.100.1", nil, "ip=198.51.100.1"},
		"twice":                   {"198.51.100.1", []string{"203.0.113.7", "203.0.113.8"}, "ip=198.51.100.1"},
		"a list":                  {"198.51.100.1", []string{"203.0.113.7, 203.0.113.8"}, "ip=198.51.100.1"},
		"no address":              {"198.51.100.1", []string{"unknown"}, "ip=198.51.100.1"},
		"endless":                 {"198.51.100.1", []string{"203.0.113.7" + long(1<<20, " ")}, "ip=198.51.100.1"},
		"X-Forwarded-For is mute": {"198.51.100.1", []string{"203.0.113.7"}, "ip=203.0.113.7"},
	} {
		t.Run(name, func(t *testing.T) {
			r := from(c.peer, "192.0.2.66")
			r.header["Cf-Connecting-Ip"] = c.lines
			assert.Equal(t, c.want, keyOf(f, r))
			if c.want == "ip=203.0.113.7" {
				assert.Equal(t, "203.0.113.7", client(r).String())
			}
		})
	}
	r := from("198.51.100.1")
	r.header["Cf-Connecting-Ip"] = []string{"203.0.113.7"}
	requireNoAllocs(t, f, r)
}

func TestAddressHeaderMistakes(t *testing.T) {
	for want, a := range map[string]keyfunc.Address{
		`Header is "CF-Connecting-IP" and Trusted is empty`: {Header: "CF-Connecting-IP"},
		`Header is "a b", which is not a header's name`:     {Header: "a b", Trusted: prefixes("10.0.0.0/8")},
		`Header is "x-forwarded-for", which holds a list`:   {Header: "x-forwarded-for", Trusted: prefixes("10.0.0.0/8")},
	} {
		require.ErrorContains(t, a.Func().Err(), want)
		_, err := a.Client()
		require.ErrorContains(t, err, want)
	}
}
