package main

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/weir-go/weir/internal/redisurl"
)

// location names a server, such as "redis://127.0.0.1:6379", or is "@" and the name of a file with that. A location with
// a password must be in a file.
type location string

// read returns the location, for a flag.
func (l location) read(flag string) (string, error) {
	if text, inFile, err := redisurl.Read(flag, string(l)); inFile {
		return text, err
	}
	password := strings.Contains(strings.ToLower(string(l)), "password=")
	u, err := url.Parse(string(l))
	if err != nil {
		if strings.Contains(string(l), "@") { // the error would have the password
			return "", fmt.Errorf("%s is no URL; write it into a file, and give %s @FILE", flag, flag)
		}
		return string(l), nil // a file, or a mistake that is found when it is opened
	}
	_, inUser := u.User.Password()
	password = password || inUser || strings.Contains(u.Opaque, "@") // user:password@tcp(host)/database, as a driver takes it
	for name := range u.Query() {
		password = password || strings.Contains(strings.ToLower(name), "password")
	}
	if password {
		return "", fmt.Errorf("%s has a password, which everybody on this machine can read; write the whole of it into a file, and give %s @FILE",
			flag, flag)
	}
	return string(l), nil
}

// publicURL returns the URL under which browsers reach the server: the flag of that name, or the address that it listens
// on, if only this machine can reach that.
func publicURL(text string, listens net.Addr) (string, error) {
	switch {
	case text != "":
		return text, nil
	case beyond(listens):
		return "", fmt.Errorf("%v can be reached by other machines; give -public-url, the https URL of the proxy with TLS that stands "+
			"before it, or listen on 127.0.0.1", listens)
	}
	return "http://" + listens.String(), nil
}

// beyond reports whether other machines can reach an address.
func beyond(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}
