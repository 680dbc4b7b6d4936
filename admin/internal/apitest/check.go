// Package apitest holds the answers of the API against its description, for tests.
package apitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/weir-go/weir/internal/adminapi"
)

// T is the part of a *testing.T that Check needs.
type T interface {
	Errorf(format string, args ...any)
}

// Check returns a transport that sends requests by next, and fails the test for each answer that the description of the
// server at url does not have: a status, a content type or a body.
func Check(t T, next http.RoundTripper, url string) http.RoundTripper {
	return &checked{t: t, next: next, url: url}
}

type checked struct {
	t    T
	next http.RoundTripper
	url  string

	once        sync.Once
	description validator.Validator
	failed      error
}

// RoundTrip implements http.RoundTripper.
func (c *checked) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if err := response.Body.Close(); err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err := c.check(r, response, body); err != nil {
		c.t.Errorf("%s %s: %s: %v\n%.2000s", r.Method, r.URL.Path, response.Status, err, body)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

func (c *checked) check(r *http.Request, response *http.Response, body []byte) error {
	if !strings.HasPrefix(r.URL.Path, "/v1/") || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return nil
	}
	if response.StatusCode >= http.StatusBadRequest {
		if err := isProblem(response, body); err != nil {
			return err
		}
	}
	c.once.Do(c.read)
	if c.failed != nil {
		return c.failed
	}
	ok, wrong := c.description.ValidateHttpResponse(r, response)
	if ok {
		return nil
	}
	var all []error
	for _, w := range wrong {
		if (w.IsPathMissingError() || w.IsOperationMissingError()) && response.StatusCode >= http.StatusBadRequest {
			continue // of paths and methods that there are not
		}
		all = append(all, fmt.Errorf("%s: %s", w.Message, w.Reason)) //nolint:err113 // for people
		for _, s := range w.SchemaValidationErrors {
			all = append(all, fmt.Errorf("  %s at %s", s.Reason, s.KeywordLocation)) //nolint:err113 // for people
		}
	}
	return errors.Join(all...)
}

// isProblem returns an error if an answer that refuses is no problem of RFC 9457.
func isProblem(response *http.Response, body []byte) error {
	if of := response.Header.Get("Content-Type"); of != adminapi.ProblemType {
		return fmt.Errorf("the content type is %q", of) //nolint:err113 // for people
	}
	var p adminapi.Problem
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return err
	}
	if p.Status != response.StatusCode || p.Title == "" || p.Detail == "" {
		return fmt.Errorf("the status, title or detail of the problem is wrong: %+v", p) //nolint:err113 // for people
	}
	return nil
}

// descriptions are those that were read, by their text: tests start many servers of one description.
var descriptions sync.Map

// read asks the server for its description.
func (c *checked) read() {
	var text []byte
	text, c.failed = c.get()
	if c.failed != nil {
		return
	}
	if known, ok := descriptions.Load(string(text)); ok {
		c.description = known.(validator.Validator) //nolint:forcetypeassert // there are no others
		return
	}
	document, err := libopenapi.NewDocument(text)
	if err != nil {
		c.failed = err
		return
	}
	var wrong []error
	c.description, wrong = validator.NewValidator(document)
	if c.failed = errors.Join(wrong...); c.failed != nil {
		return
	}
	if ok, wrong := c.description.ValidateDocument(); !ok {
		for _, w := range wrong {
			c.failed = errors.Join(c.failed, fmt.Errorf("the description: %s: %s", w.Message, w.Reason)) //nolint:err113 // for people
		}
	}
	descriptions.Store(string(text), c.description)
}

func (c *checked) get() ([]byte, error) {
	r, err := http.NewRequest(http.MethodGet, c.url+adminapi.PathOpenAPI, nil) //nolint:noctx // of a test
	if err != nil {
		return nil, err
	}
	response, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}
