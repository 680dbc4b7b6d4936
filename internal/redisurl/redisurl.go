// Package redisurl makes a client of a URL, for the commands of this repository.
package redisurl

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

const such = "give one such as redis://user:password@host:6379"

// Read returns the location that a flag has, or the line of the file that it names: everybody on a machine can read the
// flags of its programs, and so a location with a password is given as "@" and the name of a file.
func Read(flag, location string) (text string, inFile bool, err error) {
	file, inFile := strings.CutPrefix(location, "@")
	if !inFile {
		return location, false, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", true, fmt.Errorf("%s: %w", flag, err)
	}
	text = strings.TrimSpace(string(data))
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return "", true, fmt.Errorf("%s: %s is empty or has several lines; write one location into it", flag, file)
	}
	return text, true, nil
}

// Connect returns a client of the Redis at a URL, or at that in a file, as Read takes it: of a Cluster with
// ?addr=host:port for a further node, of a Sentinel with ?master_name=name. The errors speak of the flag -redis. The client repeats nothing: a transaction that is sent once
// more, on another connection, would not watch its key. It keeps to the deadlines of contexts if asked to, as
// redisstore.New demands.
func Connect(location string, contexts bool) (redis.UniversalClient, error) {
	location, _, err := Read("-redis", location)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(location)
	if err != nil { // the error would have the password
		return nil, errors.New("-redis is no URL; " + such)
	}
	if u.Query().Has("master_name") {
		o, err := redis.ParseFailoverURL(location)
		if err != nil {
			return nil, fmt.Errorf("-redis: %w; %s", err, such)
		}
		o.MaxRetries, o.ContextTimeoutEnabled = -1, contexts
		return redis.NewFailoverClient(o), nil
	}
	if u.Query().Has("addr") {
		o, err := redis.ParseClusterURL(location)
		if err != nil {
			return nil, fmt.Errorf("-redis: %w; %s", err, such)
		}
		o.MaxRetries, o.ContextTimeoutEnabled = -1, contexts
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(location)
	if err != nil {
		return nil, fmt.Errorf("-redis: %w; %s", err, such)
	}
	o.MaxRetries, o.ContextTimeoutEnabled = -1, contexts
	return redis.NewClient(o), nil
}
