package gatewayfile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-go/weir/keyfunc"
)

// host makes a part of the host that was asked for, without its port, in lower case.
var host = keyfunc.Custom("host", func(r keyfunc.Request) (string, error) {
	name := r.Host()
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, ']') {
		name = name[:i]
	}
	return strings.ToLower(strings.TrimSuffix(name, ".")), nil
})

// key returns the key function of a text: parts such as "ip", joined by "+".
func key(text string) (keyfunc.Func, error) {
	var parts []keyfunc.Func
	for part := range strings.SplitSeq(text, "+") {
		f, err := keyPart(strings.TrimSpace(part))
		if err == nil {
			err = f.Err()
		}
		if err != nil {
			return keyfunc.Func{}, fmt.Errorf("key %q: %w", text, err)
		}
		parts = append(parts, f)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	joined := keyfunc.Join(parts...)
	if err := joined.Err(); err != nil {
		return joined, fmt.Errorf("key %q: %w", text, err)
	}
	return joined, nil
}

// keyPart returns the key function of one part.
func keyPart(part string) (keyfunc.Func, error) {
	switch part {
	case "ip":
		return keyfunc.IP(), nil
	case "host":
		return host, nil
	case "route":
		return keyfunc.Route(), nil
	case "method":
		return keyfunc.Method(), nil
	}
	if name, ok := strings.CutPrefix(part, "header "); ok {
		return keyfunc.Header(strings.TrimSpace(name)), nil
	}
	if sizes, ok := strings.CutPrefix(part, "ip/"); ok {
		v4, v6, _ := strings.Cut(sizes, "/")
		four, err4 := strconv.Atoi(v4)
		six, err6 := strconv.Atoi(v6)
		if err4 == nil && err6 == nil && four > 0 && six > 0 {
			return keyfunc.Address{V4Bits: four, V6Bits: six}.Func(), nil
		}
	}
	return keyfunc.Func{}, fmt.Errorf("%q is no part of a key; give ip, ip/24/56, header X-Api-Key, host, route or method, joined by \"+\"", part)
}
