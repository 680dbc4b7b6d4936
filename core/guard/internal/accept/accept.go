// Package accept chooses the format of an answer by the header of its request.
package accept

import (
	"iter"
	"strings"
)

// Format is the format of a body that a client can ask for.
type Format uint8

// The formats. One that comes later says more.
const (
	Text Format = iota
	JSON
	Problem // RFC 9457
)

// The types of the bodies, for Content-Type.
const (
	TypeText    = "text/plain; charset=utf-8"
	TypeJSON    = "application/json"
	TypeProblem = "application/problem+json"
)

// preference is the weight that a client gives to a format.
type preference struct {
	q        int // its quality, in thousandths
	specific int // 3 if the client names the format, 2 its kind, 1 anything, 0 none of these
}

// Bounds on what is read of Accept: a client may send a megabyte, and a refusal must cost little all the same.
const (
	maxBytes   = 1 << 10
	maxEntries = 16
)

// Negotiate returns the format that the lines of an Accept header ask for, as RFC 9110 has it: that of the best
// quality; of equals, the one that is named more exactly, and of those the one that says more. If a client accepts
// none, or anything, it is plain text. Entries after the first 16, or the first KiB, are not read. It does not
// allocate.
func Negotiate(lines []string) Format {
	var wants [Problem + 1]preference
	if len(lines) == 1 && lines[0] == "*/*" {
		return Text // which nearly all programs send, and which says nothing
	}
	for entry := range entries(lines) {
		mediaRange, params, _ := strings.Cut(entry, ";")
		mediaRange = strings.TrimSpace(mediaRange)
		note := func(f Format, specific int) {
			if specific >= wants[f].specific {
				wants[f] = preference{quality(params), specific}
			}
		}
		switch {
		case strings.EqualFold(mediaRange, TypeProblem):
			note(Problem, 3)
		case strings.EqualFold(mediaRange, TypeJSON):
			note(JSON, 3)
		case strings.EqualFold(mediaRange, "application/*"):
			note(Problem, 2)
			note(JSON, 2)
		case strings.EqualFold(mediaRange, "text/plain"):
			note(Text, 3)
		case strings.EqualFold(mediaRange, "text/*"):
			note(Text, 2)
		case mediaRange == "*/*":
			note(Text, 1)
			note(JSON, 1)
			note(Problem, 1)
		}
	}
	best := Text
	for f := JSON; f <= Problem; f++ {
		a, b := wants[f], wants[best]
		if a.q > b.q || a.q == b.q && a.q > 0 && (a.specific > b.specific || a.specific == b.specific && a.specific > 1) {
			best = f
		}
	}
	return best
}

// entries yields the entries that are read. All that Negotiate does is done for one of them, in time linear in its
// length.
func entries(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		bytes, n := maxBytes, maxEntries // left to read
		for _, line := range lines {
			line = line[:min(len(line), bytes)]
			bytes -= len(line)
			for entry := range strings.SplitSeq(line, ",") {
				if n--; n < 0 || !yield(entry) {
					return
				}
			}
		}
	}
}

// quality returns the weight of a media range, in thousandths: 1000 unless a parameter q says less. What cannot be read
// counts as the best, as if it were not there.
func quality(params string) int {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		whole, fraction, _ := strings.Cut(strings.TrimSpace(value), ".")
		if whole != "0" || len(fraction) > 3 {
			return 1000
		}
		q, digit := 0, 100
		for i := range len(fraction) {
			if fraction[i] < '0' || fraction[i] > '9' {
				return 1000
			}
			q += int(fraction[i]-'0') * digit
			digit /= 10
		}
		return q
	}
	return 1000
}

// IsGRPC reports whether the lines of Content-Type are those of gRPC.
func IsGRPC(lines []string) bool {
	const grpc = "application/grpc"
	if len(lines) != 1 || len(lines[0]) < len(grpc) || !strings.EqualFold(lines[0][:len(grpc)], grpc) {
		return false
	}
	rest := lines[0][len(grpc):]
	return rest == "" || rest[0] == '+' || rest[0] == ';'
}
