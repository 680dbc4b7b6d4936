package keyfunc

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"net/textproto"
	"path"
	"reflect"
	"slices"
	"strconv"
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

// How much of a request a key is made of at most, so that keys stay short, and cost little. Most servers and proxies
// let no longer headers and paths pass.
const (
	maxBytes = 8192 // of a header
	maxPath  = 4096
)

var (
	errLongHeader = fmt.Errorf("%w: the header has more than %d bytes", ErrNoKey, maxBytes)
	errTwice      = fmt.Errorf("%w: the header stands more than once", ErrNoKey)
)

// Route makes a part of the pattern that the router has chosen, such as "/items/{id}": all paths that lead to one
// handler count as one. It does not have the method in it; add [Method] to count methods apart. All requests that
// match no route share one part, the empty one, so that nobody gets new keys by asking for what does not exist. It
// never fails.
//
// Join it with who is counted: alone, it counts all clients together.
func Route() Func {
	return Func{name: "route", kinds: []string{kindRoute}, sure: true, add: func(k *Key, r Request) error {
		k.Add(kindRoute, r.Route())
		return nil
	}}
}

// Path makes a part of the path of the request's URL, decoded, and cleaned as [path.Clean] does: without empty
// elements, dot elements and a slash at the end. Upper and lower case differ. All paths of more than 4096 bytes share
// one part, the empty one. It never fails.
//
// WARNING: clients invent paths, and each is a new key with a fresh limit. Use [Route], except where the set of
// paths is known to be small and others are answered before.
func Path() Func {
	return Func{name: "path", kinds: []string{kindPath}, sure: true, add: func(k *Key, r Request) error {
		p := r.Path()
		if len(p) > maxPath {
			k.Add(kindPath, "")
			return nil
		}
		if !strings.HasPrefix(p, "/") {
			p = "/" + p
		}
		k.Add(kindPath, path.Clean(p))
		return nil
	}}
}

// Method makes a part of the request's method. HEAD counts as GET, because it asks for the same work. A method other
// than the nine standard ones is "OTHER", so that nobody gets new keys by inventing methods. It never fails.
//
// Where a middleware overrides the method by a header, it must run before the limit, or clients choose this part.
func Method() Func {
	return Func{name: "method", kinds: []string{kindMethod}, sure: true, add: func(k *Key, r Request) error {
		m := r.Method()
		switch m {
		case "GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE":
		case "HEAD":
			m = "GET"
		default:
			m = "OTHER"
		}
		k.Add(kindMethod, m)
		return nil
	}}
}

// Header makes a part of the header of that name, upper and lower case in the name being the same. If there is none, if
// it is empty or has more than 8192 bytes, the error is [ErrNoKey]. So it is if the header stands more than once: whoever
// has verified it has looked at one of the lines, and a client could make up keys by the others. A name that is not a
// token as RFC 9110 has it is a mistake that Err reports, and so is Host, which net/http does not keep in the header.
//
// Of a header that holds a credential, the SHA-256 sum stands in the key, so that whoever reads keys in the store or in a
// log cannot act as the client. The name of the Func says so: "header(X-Api-Key, hashed)". Such are Authorization, Cookie,
// and all whose names contain "auth", "cookie", "credential", "jwt", "key", "passw", "secret", "session" or "token". For
// others use Hash(Header(name)); [HeaderInClear] hashes none.
//
// Of Authorization and Proxy-Authorization, what follows the scheme is the part: "Bearer", "bearer" and any number of
// spaces are the same credential. Cookie is all cookies together, of which a client adds more as it likes: use [Custom]
// for the one that is verified.
//
// WARNING: clients choose what a header says. Use one only if something in front of the limit has verified or written
// it, such as an API key that a gateway has checked. Otherwise a client sends another value with each request and is
// never limited. For addresses use [ForwardedIP], which knows whom to believe.
func Header(name string) Func {
	lower := strings.ToLower(name)
	return header("Header", name, slices.ContainsFunc(credentials, func(word string) bool { return strings.Contains(lower, word) }))
}

// HeaderInClear is like [Header], but a credential stands in the key as it is. Use it where keys must be read by people,
// and everybody who can read the store or a log may know the credentials.
func HeaderInClear(name string) Func { return header("HeaderInClear", name, false) }

// credentials are words in the names of headers that hold credentials.
var credentials = []string{"auth", "cookie", "credential", "jwt", "key", "passw", "secret", "session", "token"}

func header(constructor, name string, hashed bool) Func {
	name = textproto.CanonicalMIMEHeaderKey(name)
	kind := headerKind + strings.ToLower(name)
	hasScheme := name == "Authorization" || name == "Proxy-Authorization"
	f := Func{name: "header(" + name + ")", kinds: []string{kind}}
	if hashed {
		f.name = "header(" + name + ", hashed)"
	}
	switch {
	case !isToken(name):
		f.err = fmt.Errorf("keyfunc: %s(%.80q): a header's name is letters, digits and !#$%%&'*+-.^_`|~, such as \"X-Api-Key\"", constructor, name)
	case name == "Host":
		f.err = fmt.Errorf(`keyfunc: %s("Host"): the host is not in the header: use keyfunc.Custom and Request.Host`, constructor)
	}
	return f.with(func(k *Key, r Request) error {
		lines := r.Header(name)
		switch {
		case len(lines) == 0:
			return ErrNoKey
		case len(lines) > 1:
			return errTwice
		}
		text := lines[0]
		switch {
		case text == "":
			return ErrNoKey
		case len(text) > maxBytes:
			return errLongHeader
		}
		if i := strings.IndexAny(text, " \t"); hasScheme && i > 0 {
			text = strings.TrimLeft(text[i:], " \t")
		}
		if hashed {
			k.addSum(kind, text)
		} else {
			k.Add(kind, text)
		}
		return nil
	})
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// User makes a part of the identity that authentication has stored in the request under key: see [Request.Value]. It
// may be a string, a []byte, any integer, or have a MarshalText or a String method, in that order of preference. Types
// derived from the first three count as them, unless they have one of the methods, and so does a whole number in a
// float64, as JSON makes of an integer. A missing value, a nil one and an empty text are [ErrNoKey]; zero is
// a user. A value of another type is an error that names the type. A nil key, and one that cannot be compared, are
// mistakes that Err reports.
//
// The same text is the same user: 7 and "7" do not differ, and neither do users stored under different keys. If those
// are different people, name them apart with [Custom].
//
// The value must be one that has been verified, so authentication has to run before the limit. Requests that fail it
// have no user; count them too, with FirstOf(User(key), IP()), or guessing is free.
func User(key any) Func {
	f := Func{name: "user(" + keyName(key) + ")", kinds: []string{kindUser}}
	switch {
	case key == nil:
		f.err = errors.New("keyfunc: User(nil): give the key under which authentication stores the user")
	case !reflect.ValueOf(key).Comparable():
		f.err = fmt.Errorf("keyfunc: User: a key of type %T cannot be compared: give a string, or a value of a type of your own", key)
	}
	return f.with(func(k *Key, r Request) error {
		switch v := r.Value(key).(type) {
		case nil:
			return ErrNoKey
		case string:
			return addSome(k, kindUser, v)
		case []byte:
			return addSome(k, kindUser, v)
		default:
			return addUser(k, v, f.name)
		}
	})
}

func addUser(k *Key, user any, name string) error {
	v := reflect.ValueOf(user)
	if kind := v.Kind(); (kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Map) && v.IsNil() {
		return ErrNoKey // rather than call a method of nil
	}
	switch u := user.(type) {
	case encoding.TextMarshaler:
		text, err := u.MarshalText()
		if err != nil {
			return fmt.Errorf("keyfunc: %s: %w", name, err)
		}
		return addSome(k, kindUser, text)
	case fmt.Stringer:
		return addSome(k, kindUser, u.String())
	}
	var digits [20]byte
	switch {
	case v.Kind() == reflect.String:
		return addSome(k, kindUser, v.String())
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		return addSome(k, kindUser, v.Bytes())
	case v.CanInt():
		return addSome(k, kindUser, strconv.AppendInt(digits[:0], v.Int(), 10))
	case v.CanUint():
		return addSome(k, kindUser, strconv.AppendUint(digits[:0], v.Uint(), 10))
	case v.CanFloat() && v.Float() == math.Trunc(v.Float()) && math.Abs(v.Float()) < 1<<53:
		return addSome(k, kindUser, strconv.AppendInt(digits[:0], int64(v.Float()), 10)) // as JSON tokens have it
	}
	return fmt.Errorf("keyfunc: %s: a %T is no key: store a string, a []byte, an integer, or a type with MarshalText or String", name, user)
}

// keyName returns a key of Value in print: itself if it is a string, else its type, and its text if it has one.
func keyName(key any) string {
	if s, ok := key.(string); ok {
		return s
	}
	v := reflect.ValueOf(key)
	if v.Kind() == reflect.String || v.CanInt() || v.CanUint() {
		return fmt.Sprintf("%T(%v)", key, key)
	}
	return fmt.Sprintf("%T", key)
}

// Const makes the same key for all requests, so that all share one limit: a ceiling for a whole service. text names
// it; "" is a mistake that Err reports. It never fails.
func Const(text string) Func {
	f := Func{name: "const(" + text + ")", kinds: []string{kindConst}, sure: true}
	if text == "" {
		f.err = errors.New(`keyfunc: Const(""): the text is empty: give the shared key a name, such as keyfunc.Const("all")`)
	}
	return f.with(func(k *Key, _ Request) error {
		k.Add(kindConst, text)
		return nil
	})
}

// Custom makes a part from the text that f returns: a tenant, a plan, a form field. Use it for what the other
// constructors do not cover. The text may be of any bytes and any length; "" means that there is none, and
// becomes [ErrNoKey]. An error of f is returned as it is; it may wrap ErrNoKey. f is called by many goroutines
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
	return Func{name: name, kinds: []string{kind}, add: func(k *Key, r Request) error {
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
