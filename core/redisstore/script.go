package redisstore

import (
	"crypto/sha1" // the name by which Redis knows a script
	"encoding/hex"
	"strconv"
	"strings"
	"sync"

	"github.com/weir-go/weir/lua"
)

// script is the text and the hash of a script, boxed once for the client's arguments.
type script struct {
	text, hash any
	takes      *script // the one that decides the same for many keys and calls, or nil
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text: text, hash: hex.EncodeToString(sum[:])}
}

// scripts are the scripts for policies of the same kinds.
type scripts struct {
	take, takes, upTo, refund *script
	log                       bool // one of the kinds keeps a log
}

// byKinds has the scripts of the kinds that the process has seen. Composing them takes milliseconds, so of a
// crowd that comes first one does it, for all stores.
var byKinds sync.Map // string -> func() (*scripts, error)

func scriptsOf(kinds string) (*scripts, error) {
	v, ok := byKinds.Load(kinds)
	if !ok {
		v, _ = byKinds.LoadOrStore(kinds, sync.OnceValues(func() (*scripts, error) { return newScripts(kinds) }))
	}
	return v.(func() (*scripts, error))() //nolint:forcetypeassert // nothing else is stored
}

func newScripts(kinds string) (*scripts, error) {
	s := &scripts{log: strings.Contains(kinds, "x")}
	for _, op := range []struct {
		into    **script
		compose func(string) (string, error)
	}{{&s.take, lua.Take}, {&s.takes, lua.Takes}, {&s.upTo, lua.UpTo}, {&s.refund, lua.Refund}} {
		text, err := op.compose(kinds)
		if err != nil {
			return nil, err
		}
		*op.into = newScript(text)
	}
	s.take.takes = s.takes
	return s, nil
}

// short returns params without the zeros at their end, which the script take does without, unless the time is forced.
func short(params []int64) []int64 {
	for len(params) > 0 && params[len(params)-1] == 0 {
		params = params[:len(params)-1]
	}
	return params
}

// arguments returns those of a script that decides, with the forced time if there is one.
func arguments(params []int64, now int64) []any {
	if now != 0 {
		params = append(params, now)
	}
	return texts(params)
}

func texts(params []int64) []any {
	args := make([]any, len(params))
	for i, n := range params {
		args[i] = strconv.FormatInt(n, 10)
	}
	return args
}
