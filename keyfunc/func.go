package keyfunc

import (
	"errors"
	"net/netip"
	"slices"
)

// ErrNoKey is the error for a request that lacks what the key is made of: an address, a user, a header. The caller
// decides what follows; there is no key that stands for "unknown". Test for it with [errors.Is].
var ErrNoKey = errors.New("keyfunc: no key")

var errZeroFunc = errors.New("keyfunc: zero Func: use a constructor such as keyfunc.IP")

// Func builds the key of a request, or some parts of it. It is a value with a name, so that a program can
// print what it counts by and can find a mistake when it starts.
//
// The zero Func is invalid: it builds no key, and Err says so. A Func is made by the constructors of this
// package, never changes, and may be used by many goroutines at the same time.
type Func struct {
	name        string
	add         func(*Key, Request) error
	err         error // a constructor's mistake; then there is no add
	kinds       []string
	peers       func(netip.Addr) bool // whether some part is made of that peer's address alone; nil if of none
	sure        bool                  // no request that came by a network lacks it
	unreachable string                // see Unreachable
}

// with returns f with the function add, unless its constructor has found a mistake.
func (f Func) with(add func(*Key, Request) error) Func {
	if f.err == nil {
		f.add = add
	}
	return f
}

// String returns the name, such as "join(ip, route)", for people to read. It is "" for the zero Func, and
// for no other.
func (f Func) String() string { return f.name }

// Err returns what was wrong with the arguments of the constructor: all mistakes at once, each saying what
// was given and what to do. It is nil for a Func that can be used.
func (f Func) Err() error {
	if f.err == nil && f.add == nil {
		return errZeroFunc
	}
	return f.err
}

// Kinds returns the kinds of the parts that f may make a key of, each once: "ip" and "route" for Join(IP(), Route()).
// Those that [Hash] hides are among them.
func (f Func) Kinds() []string { return slices.Clone(f.kinds) }

// CountsPeer reports whether f may make a part of the address of that peer of a socket, whatever headers say: [IP] does
// for each, and [ForwardedIP] for one that is not in its networks. If the peer is a proxy, all of its clients share it.
func (f Func) CountsPeer(peer netip.Addr) bool { return f.peers != nil && f.peers(peer) }

// Unreachable returns the name of a part that no request reaches, because every request has a part that stands before
// it in a [FirstOf]: "user(uid)" for FirstOf(IP(), User("uid")). Write such a part first. It is "" if there is none.
// Requests from unix sockets, which have no address, do not count.
func (f Func) Unreachable() string { return f.unreachable }

// AppendTo appends the request's parts to k. If it fails, k is left as it was, and the error is
//
//   - [ErrNoKey], or an error that wraps it, where the request lacks a part,
//   - what the function of a [Custom] returned, unchanged,
//   - that of [User] for a value that cannot be a key,
//   - that of Err, for an invalid Func.
//
// A panic of the program's own code (the function of a Custom, or a String method) passes through; k must then be
// Reset.
func (f Func) AppendTo(k *Key, r Request) error {
	if f.add == nil {
		return f.Err()
	}
	before, warning := len(k.b), k.warning
	if err := f.add(k, r); err != nil {
		k.b, k.warning = k.b[:before], warning
		return err
	}
	return nil
}
