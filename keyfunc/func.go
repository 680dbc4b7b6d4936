package keyfunc

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The kinds of the parts that this package makes. Those of headers are headerKind and the header's name.
const (
	kindIP     = "ip"
	kindRoute  = "route"
	kindPath   = "path"
	kindMethod = "method"
	kindUser   = "user"
	kindConst  = "const"
	kindHash   = "hash"
	headerKind = "header."
)

// maxKind is the greatest length of a custom kind in bytes.
const maxKind = 64

// ErrNoKey says that a request lacks what the key is made of: an address, a user, a header. The caller
// decides what follows; there is no key that stands for "unknown". Test for it with [errors.Is].
var ErrNoKey = errors.New("keyfunc: no key")

var errZeroFunc = errors.New("keyfunc: zero Func: use a constructor such as keyfunc.IP")

// Func builds the key of a request, or some parts of it. It is a value with a name, so that a program can
// print what it counts by and can find a mistake when it starts.
//
// The zero Func is invalid: it builds no key, and Err says so. A Func is made by the constructors of this
// package, never changes, and may be used by many goroutines at the same time.
type Func struct {
	name string
	add  func(*Key, Request) error
	err  error // a constructor's mistake
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

// AppendTo appends the request's parts to k. If it fails, k is left as it was, and the error is
//
//   - [ErrNoKey], or an error that wraps it, where the request lacks a part,
//   - what the function of a [Custom] returned, unchanged,
//   - that of [User] for a value that cannot be a key,
//   - that of Err, for an invalid Func.
//
// It does not recover: a panic of the program's own code (of Custom, or a String method) passes through, and
// k is then to be Reset.
func (f Func) AppendTo(k *Key, r Request) error {
	if err := f.Err(); err != nil {
		return err
	}
	before, warning := len(k.b), k.warning
	if err := f.add(k, r); err != nil {
		k.b, k.warning = k.b[:before], warning
		return err
	}
	return nil
}

// Custom makes a part from the text that f returns: a tenant, a plan, a form field. Use it for what the other
// constructors do not cover. The text may be of any bytes and any length; "" means that there is none, and
// becomes [ErrNoKey]. An error of f is returned as it is; it may wrap ErrNoKey. F is called by many goroutines
// at the same time.
//
// Kind names what the text is, and keeps it apart from all other kinds: the user 7 is not the tenant 7. It is a
// lower-case letter and up to 63 more bytes of [a-z0-9_.-], and not one of this package's own kinds: ip, route,
// path, method, user, const, hash, header, and what begins with "header.". A bad kind and a nil f are mistakes
// that Err reports.
//
// WARNING: text that the client may choose freely is no key. See the package's "Whom to trust".
func Custom(kind string, f func(Request) (string, error)) Func {
	name := "custom(" + kind + ")"
	errs := []error{checkKind(kind)}
	if f == nil {
		errs = append(errs, fmt.Errorf("keyfunc: Custom(%q): the function is nil: give one that returns the text of the key", kind))
	}
	if err := errors.Join(errs...); err != nil {
		return Func{name: name, err: err}
	}
	return Func{name: name, add: func(k *Key, r Request) error {
		part, err := f(r)
		if err != nil {
			return err
		}
		return addSome(k, kind, part)
	}}
}

// addSome adds a part that must not be empty.
func addSome[T string | []byte](k *Key, kind string, part T) error {
	if len(part) == 0 {
		return ErrNoKey
	}
	add(k, kind, part)
	return nil
}

func checkKind(kind string) error {
	bad := kind == "" || len(kind) > maxKind || kind[0] < 'a' || kind[0] > 'z'
	for i := range len(kind) {
		c := kind[i]
		bad = bad || !plain[c] || c == ':' || c == '/' || 'A' <= c && c <= 'Z'
	}
	if bad {
		return fmt.Errorf("keyfunc: Custom(%.80q): a kind is a lower-case letter and up to %d more of a-z, 0-9, '_', '.' and '-', such as \"tenant\"",
			kind, maxKind-1)
	}
	switch kind {
	case kindIP, kindRoute, kindPath, kindMethod, kindUser, kindConst, kindHash, "header":
	default:
		if !strings.HasPrefix(kind, headerKind) {
			return nil
		}
	}
	return fmt.Errorf("keyfunc: Custom(%q): this package uses that kind itself: choose another, such as %q", kind, "my-"+kind)
}

// Join makes the key of all its parts together, in that order: Join(IP(), Route()) counts each address on each
// route apart. If one part is missing, all of it is: the error is that of the first part that fails.
// Joining no parts, or invalid ones, is a mistake that Err reports.
func Join(parts ...Func) Func {
	f, parts := combine("join", "Join", parts)
	f.add = func(k *Key, r Request) error {
		for _, p := range parts {
			if err := p.AppendTo(k, r); err != nil {
				return err
			}
		}
		return nil
	}
	return f
}

// FirstOf makes the key by the first of fs for which there is one: FirstOf(User("uid"), IP()) counts users, and
// those who are not logged in by address. Only [ErrNoKey] goes on to the next; any other error is returned.
// Where none has a key, the answer is ErrNoKey. Choosing from nothing, or from invalid Funcs, is a mistake that
// Err reports.
//
// All of fs lead into one limit. Where users and addresses are to have different limits, write two rules.
func FirstOf(fs ...Func) Func {
	f, fs := combine("first-of", "FirstOf", fs)
	f.add = func(k *Key, r Request) error {
		for _, p := range fs {
			if err := p.AppendTo(k, r); err == nil || !errors.Is(err, ErrNoKey) {
				return err
			}
		}
		return ErrNoKey
	}
	return f
}

// combine returns a Func that has a name and the parts' mistakes, and a copy of the parts.
func combine(name, constructor string, parts []Func) (Func, []Func) {
	names := make([]string, len(parts))
	var errs []error
	if len(parts) == 0 {
		errs = append(errs, fmt.Errorf("keyfunc: %s() of nothing: give at least one Func, such as keyfunc.IP()", constructor))
	}
	for i, p := range parts {
		names[i] = p.name
		err := p.Err()
		if err == nil {
			continue
		}
		if p.name == "" {
			names[i] = "invalid"
			err = fmt.Errorf("keyfunc: %s, part %d of %d: %w", constructor, i+1, len(parts), err)
		}
		errs = append(errs, err)
	}
	f := Func{name: name + "(" + strings.Join(names, ", ") + ")", err: errors.Join(errs...)}
	return f, slices.Clone(parts)
}

// Const makes the same key for all requests, so that all share one limit: a ceiling for a whole service. Text names
// it; "" is a mistake that Err reports. It never fails.
func Const(text string) Func {
	f := Func{name: "const(" + text + ")"}
	if text == "" {
		f.err = errors.New(`keyfunc: Const(""): the text is empty: give the shared key a name, such as keyfunc.Const("all")`)
	}
	f.add = func(k *Key, _ Request) error {
		k.Add(kindConst, text)
		return nil
	}
	return f
}

// Hash replaces the key that f makes by its SHA-256 sum, as one part of kind "hash": keys get a fixed length of
// 48 bytes, and do not show at first sight whom they stand for. Its errors are those of f.
//
// WARNING: the sum has no secret in it. From the sum of an address, anybody finds the address by trying them all.
// Where keys must not disclose people to those who can read the store, let the store hash the keys, which it
// does with a secret.
func Hash(f Func) Func {
	g, parts := combine("hash", "Hash", []Func{f})
	g.add = func(k *Key, r Request) error {
		before := len(k.b)
		if err := parts[0].AppendTo(k, r); err != nil {
			return err
		}
		inner := k.b[before:]
		if before > 0 {
			inner = inner[1:] // the separator
		}
		sum := sha256.Sum256(inner)
		k.b = k.b[:before]
		k.begin(kindHash)
		k.b = base64.RawURLEncoding.AppendEncode(k.b, sum[:])
		return nil
	}
	return g
}
