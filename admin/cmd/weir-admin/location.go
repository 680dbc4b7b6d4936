package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// location is where a server is, such as "redis://127.0.0.1:6379", or "@" and the name of a file that says so. What has
// a password must be in a file.
type location string

// read returns the location, for a flag.
func (l location) read(flag string) (string, error) {
	if file, found := strings.CutPrefix(string(l), "@"); found {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", flag, err)
		}
		text := strings.TrimSpace(string(data))
		if text == "" || strings.ContainsAny(text, "\r\n") {
			return "", fmt.Errorf("%s: %s is empty or has several lines; write one location into it", flag, file)
		}
		return text, nil
	}
	u, err := url.Parse(string(l))
	if err != nil {
		if strings.Contains(string(l), "@") { // the error would have the password
			return "", fmt.Errorf("%s is no URL; write it into a file, and give %s @FILE", flag, flag)
		}
		return string(l), nil // a file, or a mistake that is found when it is opened
	}
	_, password := u.User.Password()
	for name := range u.Query() {
		password = password || strings.Contains(strings.ToLower(name), "password")
	}
	if password {
		return "", fmt.Errorf("%s has a password, which everybody on this machine can read; write the whole URL into a file, and give %s @FILE",
			flag, flag)
	}
	return string(l), nil
}

// publicURL reads the flag of that name: the URL under which browsers reach the server. Without it, there is the address
// that it listens on, which only this machine can reach.
func publicURL(text string, listens net.Addr) (*url.URL, error) {
	if text == "" {
		if beyond(listens) {
			return nil, fmt.Errorf("%v can be reached by other machines; give -public-url, the https URL of the proxy with TLS that stands "+
				"before it, or listen on 127.0.0.1", listens)
		}
		return &url.URL{Scheme: "http", Host: listens.String()}, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("-public-url is no URL; give one such as https://limits.example.com")
	}
	if u.User != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("-public-url is %q; give a scheme and a host alone, such as https://limits.example.com", u.Redacted())
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return nil, fmt.Errorf("-public-url is %q; give one with https: browsers keep no session of another machine without it", text)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// loopback reports whether a host is this machine for whoever asks.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// beyond reports whether other machines can reach an address.
func beyond(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}
