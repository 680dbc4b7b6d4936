package rlsenv

import (
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core/redisstore"
)

// redisEnv are the variables of one Redis.
type redisEnv struct {
	prefix         string // of their names
	socket, kind   string
	url            string
	auth, sentinel string
	tls            bool
	pool           int
}

const defaultPool = 10

func (r *reader) redis(prefix string) redisEnv {
	path := "/var/run/nutcracker/ratelimit.sock"
	if prefix != "REDIS_" {
		path = "/var/run/nutcracker/ratelimitpersecond.sock"
	}
	e := redisEnv{
		prefix:   prefix,
		socket:   r.text(prefix+"SOCKET_TYPE", "unix"),
		kind:     strings.ToLower(r.text(prefix+"TYPE", "SINGLE")),
		url:      r.text(prefix+"URL", path),
		auth:     r.text(prefix+"AUTH", ""),
		sentinel: r.text(prefix+"SENTINEL_AUTH", ""),
		tls:      r.flag(prefix+"TLS", false),
		pool:     r.number(prefix+"POOL_SIZE", defaultPool, 1, 100_000),
	}
	e.tls = e.tls || e.socket == "tls"
	return e
}

// options returns the options of a client. What is wrong is noted, without the text of the location, which may have a
// password.
func (r *reader) options(e redisEnv, config *tls.Config) *redis.UniversalOptions {
	addrs, master := list(e.url), ""
	unix := false
	switch e.kind {
	case "single":
		switch e.socket {
		case "unix":
			unix = true
		case "tcp", "tcp4", "tcp6", "tls":
		default:
			r.wrong(e.prefix+"SOCKET_TYPE", e.socket, "unix, tcp or tls")
			return nil
		}
		if len(addrs) > 1 {
			r.wrong(e.prefix+"URL", "", "one server, or set "+e.prefix+"TYPE to CLUSTER or SENTINEL")
			return nil
		}
	case "cluster":
	case "sentinel":
		if len(addrs) < 2 || strings.Contains(addrs[0], ":") {
			r.wrong(e.prefix+"URL", "", `the name of the master and the Sentinels, as in "name,10.0.0.1:26379,10.0.0.2:26379"`)
			return nil
		}
		master, addrs = addrs[0], addrs[1:]
	default:
		r.wrong(e.prefix+"TYPE", e.kind, "SINGLE, SENTINEL or CLUSTER")
		return nil
	}
	var first location
	for i, addr := range addrs {
		if strings.HasPrefix(addr, "rediss://") {
			r.wrong(e.prefix+"URL", "", "redis:// in the place of rediss://, with "+e.prefix+"TLS=true, and "+e.prefix+"SOCKET_TYPE=tcp if it is a single server")
			return nil
		}
		l, err := parse(addr, unix)
		if err != nil {
			r.wrong(e.prefix+"URL", "", err.Error())
			return nil
		}
		if i == 0 {
			first = l
		}
		addrs[i] = l.addr
	}
	if len(addrs) == 0 {
		r.wrong(e.prefix+"URL", "", such)
		return nil
	}
	o := redisstore.ClientOptions(addrs...)
	o.MasterName, o.IsClusterMode = master, e.kind == "cluster"
	o.Username, o.Password = credentials(e.auth)
	if master != "" {
		o.SentinelUsername, o.SentinelPassword = credentials(e.sentinel)
		if e.sentinel == "" {
			o.SentinelUsername, o.SentinelPassword = first.user, first.password
		}
	} else {
		if e.auth == "" {
			o.Username, o.Password = first.user, first.password
		}
		o.DB = first.db
	}
	o.PoolSize = max(e.pool, 2) // what nobody waits for needs one
	o.MinIdleConns = min(o.MinIdleConns, e.pool)
	if e.tls {
		o.TLSConfig = config
	}
	return o
}

// credentials returns the name and the password in "name:password", or "password".
func credentials(text string) (user, password string) {
	if user, password, ok := strings.Cut(text, ":"); ok {
		return user, password
	}
	return "", text
}

// location is a server, with what its URL says beside the address.
type location struct {
	addr, user, password string
	db                   int
}

const such = `a host and a port, such as "10.0.0.1:6379", or "redis://user:password@10.0.0.1:6379/0"`

// parse reads where a server is. Its errors say what to give.
func parse(text string, unix bool) (location, error) {
	if rest, ok := strings.CutPrefix(text, "redis://"); ok && !unix {
		return parseURL("redis://" + rest)
	}
	if unix {
		switch {
		case strings.HasPrefix(text, "/"):
			return location{addr: text}, nil
		case text == "" || strings.HasPrefix(text, "@") || strings.Contains(text, ":"):
			return location{}, errors.New("the path of a socket, or set the SOCKET_TYPE beside it to tcp for a host and a port")
		}
		path, err := filepath.Abs(text)
		if err != nil {
			return location{}, errors.New("the path of a socket from / on")
		}
		return location{addr: path}, nil
	}
	if _, port, err := net.SplitHostPort(text); err != nil || port == "" {
		return location{}, errors.New(such)
	}
	return location{addr: text}, nil
}

func parseURL(text string) (location, error) {
	u, err := url.Parse(text)
	if err != nil {
		return location{}, errors.New(such)
	}
	q := u.Query()
	l := location{addr: u.Host, user: q.Get("username"), password: q.Get("password")}
	if name := u.User.Username(); name != "" {
		l.user = name
	}
	if password, ok := u.User.Password(); ok {
		l.password = password
	}
	if _, port, err := net.SplitHostPort(l.addr); err != nil || port == "" {
		return location{}, errors.New(such)
	}
	db := q.Get("db")
	if path := strings.Trim(u.Path, "/"); path != "" {
		db = path
	}
	if db != "" {
		if l.db, err = strconv.Atoi(db); err != nil || l.db < 0 {
			return location{}, errors.New(such)
		}
	}
	return l, nil
}
