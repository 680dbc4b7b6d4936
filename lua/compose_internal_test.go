package lua

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The header of a file and its text must agree about the arguments.
func TestArguments(t *testing.T) {
	compose := func(algorithm, template string) (string, error) {
		from := fstest.MapFS{}
		for name, text := range map[string]string{
			"some.lua": algorithm, "take.lua": template,
			"frame.lua": "-- frame\n\n--@ open\nlocal now = ARG.now\n\n--@ split\nlocal s_all\n",
		} {
			from[name] = &fstest.MapFile{Data: []byte(text)}
		}
		return load(from).compose("take", "yy")
	}
	const (
		header   = "-- some: an algorithm\n--\n-- Letter: y\n-- Arguments of take: first second\n-- Arguments of upto: third\n\n"
		load     = "--@ load\nlocal x_i = ARG.first + ARG.second\n\n--@ other\nlocal z_i = ARG.fourth\n\n"
		reply    = "--@ reply\nx_i\n"
		template = "-- take: an operation\n-- Arguments, after those of the limits: units now\n\n--> open\n--> load\nreturn { ARG.units, reply_all }\n"
	)
	script, err := compose(header+load+reply, template)
	require.NoError(t, err)
	assert.Equal(t, "local now = ARGV[6]\nlocal x_1 = ARGV[1] + ARGV[2]\nlocal x_2 = ARGV[3] + ARGV[4]\nreturn { ARGV[5], x_1, x_2 }\n", script)

	for want, c := range map[string][2]string{
		`lua: some.lua, in the script take, reads ARG.third, which is not among its arguments ["first" "second"]`: {
			header + load + "--@ reply\nARG.third\n", template,
		},
		"lua: some.lua, in the script take, declares the argument second and does not read it": {
			header + "--@ load\nlocal x_i = ARG.first\n" + reply, template,
		},
		`lua: some.lua does not declare its arguments of take; add a line "-- Arguments of take: ..." to the header`: {
			"-- some: an algorithm\n-- Letter: y\n\n" + load + reply, template,
		},
		`lua: take.lua, in the script take, reads ARG.other, which is not among its arguments ["units" "now"]`: {
			header + load + reply, template + "return ARG.other",
		},
		"lua: take.lua, in the script take, declares the argument units and does not read it": {
			header + load + reply, "-- take\n-- Arguments, after those of the limits: units now\n\n--> open\n--> load\n",
		},
	} {
		script, err := compose(c[0], c[1])
		require.EqualError(t, err, want)
		assert.Empty(t, script)
	}
}
