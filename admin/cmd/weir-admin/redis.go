package main

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/redis/go-redis/v9"
)

const such = "give one such as redis://user:password@host:6379"

// connect returns a client that repeats nothing: a transaction that is sent once more, on another connection, would not
// watch its key.
func connect(location string) (redis.UniversalClient, error) {
	u, err := url.Parse(location)
	if err != nil { // the error would have the password
		return nil, errors.New("-redis is no URL; " + such)
	}
	if u.Query().Has("master_name") {
		o, err := redis.ParseFailoverURL(location)
		if err != nil {
			return nil, fmt.Errorf("-redis: %w; %s", err, such)
		}
		o.MaxRetries = -1
		return redis.NewFailoverClient(o), nil
	}
	if u.Query().Has("addr") {
		o, err := redis.ParseClusterURL(location)
		if err != nil {
			return nil, fmt.Errorf("-redis: %w; %s", err, such)
		}
		o.MaxRetries = -1
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(location)
	if err != nil {
		return nil, fmt.Errorf("-redis: %w; %s", err, such)
	}
	o.MaxRetries = -1
	return redis.NewClient(o), nil
}
