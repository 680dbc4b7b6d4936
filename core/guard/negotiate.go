package guard

import (
	"strings"

	"github.com/weir-go/weir/keyfunc"
)

// format is how an answer is written.
type format uint8

const (
	asText format = iota
	asJSON
	asProblem
	asGRPC
	asNative // by a handler of the program's own, which sets the type itself
	formats
)

const (
	typeText    = "text/plain; charset=utf-8"
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// preference is how much a client wants a format.
type preference struct {
	q        int // its quality, in thousandths
	specific int // how exactly the client names it: 3 itself, 2 its kind, 1 anything, 0 not at all
}

// How much of Accept is read: the header may be of a megabyte, and a refusal costs little whatever stands in it.
const (
	maxAccept  = 1 << 10 // bytes
	maxEntries = 16
)

// accepted returns the format that the lines of an Accept header ask for, as RFC 9110 has it: that of the best quality;
// of equals, the one that is named more exactly, and of those the one that says more. If a client accepts none, or
// anything, it is plain text. Entries after the first 16, or the first KiB, are not read. It does not allocate.
func accepted(lines []string) format {
	var wants [asProblem + 1]preference
	bytes, entries := maxAccept, maxEntries // that are still read
read:
	for _, line := range lines {
		if len(lines) == 1 && line == "*/*" {
			break // which nearly all programs send, and which says nothing
		}
		line = line[:min(len(line), bytes)]
		bytes -= len(line)
		for entry := range strings.SplitSeq(line, ",") {
			if entries--; entries < 0 {
				break read
			}
			mediaRange, params, _ := strings.Cut(entry, ";")
			mediaRange = strings.TrimSpace(mediaRange)
			note := func(f format, specific int) {
				if specific >= wants[f].specific {
					wants[f] = preference{quality(params), specific}
				}
			}
			switch {
			case strings.EqualFold(mediaRange, typeProblem):
				note(asProblem, 3)
			case strings.EqualFold(mediaRange, typeJSON):
				note(asJSON, 3)
			case strings.EqualFold(mediaRange, "application/*"):
				note(asProblem, 2)
				note(asJSON, 2)
			case strings.EqualFold(mediaRange, "text/plain"):
				note(asText, 3)
			case strings.EqualFold(mediaRange, "text/*"):
				note(asText, 2)
			case mediaRange == "*/*":
				note(asText, 1)
				note(asJSON, 1)
				note(asProblem, 1)
			}
		}
	}
	best := asText
	for f := asJSON; f <= asProblem; f++ {
		a, b := wants[f], wants[best]
		if a.q > b.q || a.q == b.q && a.q > 0 && (a.specific > b.specific || a.specific == b.specific && a.specific > 1) {
			best = f
		}
	}
	return best
}

// quality is that of a media range, in thousandths: 1000 unless a parameter q says less. What cannot be read counts as
// the best, as if it were not there.
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

// isGRPC reports whether a request over HTTP/2 is a call of gRPC: a POST of that type. What merely claims the type gets
// the status of a refusal, which access logs and bans go by. A call of gRPC-Web does too: its clients understand it.
func isGRPC(q keyfunc.Request) bool {
	return isGRPCType(q.Header(headerType)) && q.Method() == "POST"
}

// isGRPCType reports whether the lines of Content-Type are those of gRPC.
func isGRPCType(lines []string) bool {
	const grpc = "application/grpc"
	if len(lines) != 1 || len(lines[0]) < len(grpc) || !strings.EqualFold(lines[0][:len(grpc)], grpc) {
		return false
	}
	rest := lines[0][len(grpc):]
	return rest == "" || rest[0] == '+' || rest[0] == ';'
}
