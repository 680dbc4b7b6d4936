// Package redisurl makes a client of a URL, for the commands of this repository.
package redisurl

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/redis/go-redis/v9"
)

const such = "give one such as redis://user:password@host:6379"

// Connect returns a client of the Redis at a URL: of a Cluster with ?addr=host:port for a further node, of a Sentinel with
// ?master_name=name. The errors speak of the flag -redis. The client repeats nothing: a transaction that is sent once
// more, on another connection, would not watch its key. It keeps to the deadlines of contexts if asked to, as
// redisstore.New demands.
func Connect(location string, contexts bool) (redis.UniversalClient, error) {
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
