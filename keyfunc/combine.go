package keyfunc

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Join makes the key of all its parts together, in that order: Join(IP(), Route()) counts each address on each
// route apart. If one part is missing, all of it is: the error is that of the first part that fails.
// No parts at all, and invalid ones, are mistakes that Err reports.
func Join(parts ...Func) Func {
	f, parts := combine("join", "Join", parts)
	return f.with(func(k *Key, r Request) error {
		for _, p := range parts {
			if err := p.AppendTo(k, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// FirstOf makes the key by the first of fs that has one: FirstOf(User("uid"), IP()) counts users by name, and
// clients that are not logged in by address. Only [ErrNoKey] goes on to the next; any other error is returned. If
// none has a key, the error is ErrNoKey. No fs at all, and invalid ones, are mistakes that Err reports.
//
// All of fs are counted by one limit. To give users and addresses different limits, write two rules.
func FirstOf(fs ...Func) Func {
	f, fs := combine("first-of", "FirstOf", fs)
	if i := slices.IndexFunc(fs, func(p Func) bool { return p.sure }); i >= 0 {
		f.sure = true
		if i < len(fs)-1 {
			f.unreachable = fs[i+1].name
		}
	}
	return f.with(func(k *Key, r Request) error {
		for _, p := range fs {
			if err := p.AppendTo(k, r); err == nil || !errors.Is(err, ErrNoKey) {
				return err
			}
		}
		return ErrNoKey
	})
}

// Hash replaces the key that f makes by its SHA-256 sum, as one part of kind "hash": keys get a fixed length of
// 48 bytes, and do not show at first sight who is counted. Its errors are those of f.
//
// WARNING: the sum has no secret in it. From the sum of an address, anybody finds the address by trying them all.
// Where keys must not disclose people to those who can read the store, let the store hash the keys, which it
// does with a secret.
func Hash(f Func) Func {
	g, parts := combine("hash", "Hash", []Func{f})
	return g.with(func(k *Key, r Request) error {
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
		k.begin()
		k.b = append(k.b, kindHash+"="...)
		k.b = base64.RawURLEncoding.AppendEncode(k.b, sum[:])
		return nil
	})
}

// combine returns a Func that has a name and the parts' mistakes, and a copy of the parts.
func combine(name, constructor string, parts []Func) (Func, []Func) {
	names := make([]string, len(parts))
	var kinds []string
	var errs []error
	var peers []func(netip.Addr) bool
	sure, unreachable := true, ""
	if len(parts) == 0 {
		errs = append(errs, fmt.Errorf("keyfunc: %s() of nothing: give at least one Func, such as keyfunc.IP()", constructor))
	}
	for i, p := range parts {
		names[i] = p.name
		sure, unreachable = sure && p.sure, cmp.Or(unreachable, p.unreachable)
		if p.peers != nil {
			peers = append(peers, p.peers)
		}
		for _, kind := range p.kinds {
			if !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
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
	f := Func{name: name + "(" + strings.Join(names, ", ") + ")", kinds: kinds, sure: sure, unreachable: unreachable, err: errors.Join(errs...)}
	if len(peers) > 0 {
		f.peers = func(peer netip.Addr) bool {
			return slices.ContainsFunc(peers, func(counts func(netip.Addr) bool) bool { return counts(peer) })
		}
	}
	return f, slices.Clone(parts)
}
