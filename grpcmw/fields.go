package grpcmw

import (
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// fields are the limits in the metadata of an answer, as guards state them. They are kept until the answer is known, because a
// client takes a call with a header for one that has begun, and does not repeat it, whatever its status: with an error,
// all is in the trailer.
type fields struct {
	to     grpc.ServerTransportStream // nil if the interceptor is called by no server
	names  []string
	values []string
	text   []byte // of the values
	room   struct {
		names, values [6]string
		text          [64]byte
	} // for all of these, nearly always
	sent atomic.Bool
}

// Get implements guard.Header.
func (f *fields) Get(name string) string {
	if i := f.find(name); i >= 0 {
		return f.values[i]
	}
	return ""
}

// Set implements guard.Header. What only HTTP knows is left out, and what HTTP/2 forbids: clients take it for a broken
// answer.
func (f *fields) Set(name, value string) {
	switch name {
	case "Content-Type", "Vary", "Cache-Control", "Access-Control-Expose-Headers",
		"Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "Content-Length", "Te", "Trailer":
		return
	}
	value = f.keep(value)
	if i := f.find(name); i >= 0 {
		f.values[i] = value
		return
	}
	if f.names == nil {
		f.names, f.values = f.room.names[:0], f.room.values[:0]
	}
	f.names, f.values = append(f.names, name), append(f.values, value)
}

// Del implements guard.Header.
func (f *fields) Del(name string) {
	if i := f.find(name); i >= 0 {
		f.values[i] = ""
	}
}

func (f *fields) find(name string) int {
	for i := range f.names {
		if f.names[i] == name {
			return i
		}
	}
	return -1
}

// sendAsHeader makes the fields a part of the header that is sent next, unless they are sent already.
func (f *fields) sendAsHeader() { f.send(true) }

// end sends the fields with the end of the call: as header only if the answer is one message.
func (f *fields) end(asHeader bool) { f.send(asHeader) }

// mds are maps for send, which gRPC copies.
var mds = sync.Pool{New: func() any { return make(metadata.MD, 6) }}

func (f *fields) send(asHeader bool) {
	if f.to == nil || len(f.names) == 0 || f.sent.Swap(true) {
		return
	}
	md, _ := mds.Get().(metadata.MD)
	for i, name := range f.names {
		if f.values[i] != "" {
			md[lower(name)] = f.values[i : i+1 : i+1]
		}
	}
	if !asHeader || f.to.SetHeader(md) != nil { // the handler has sent the header
		_ = f.to.SetTrailer(md) // it fails where the stream is over, and nobody is left to tell
	}
	clear(md)
	mds.Put(md)
}

// lower returns a name in the form of metadata. For the usual ones it allocates nothing.
func lower(name string) string {
	switch name {
	case "X-Ratelimit-Limit":
		return "x-ratelimit-limit"
	case "X-Ratelimit-Remaining":
		return "x-ratelimit-remaining"
	case "X-Ratelimit-Reset":
		return "x-ratelimit-reset"
	default:
		return strings.ToLower(name)
	}
}

// keep returns a copy of a value, because the memory of the Scratch is used again before the metadata is sent. It has a
// "?" for each byte that metadata cannot carry.
func (f *fields) keep(value string) string {
	if f.text == nil {
		f.text = f.room.text[:0]
	}
	from := len(f.text)
	f.text = append(f.text, value...)
	kept := f.text[from:]
	for i, c := range kept {
		if c < ' ' || c > '~' {
			kept[i] = '?'
		}
	}
	return unsafe.String(unsafe.SliceData(kept), len(kept)) // nothing is written there any more
}
