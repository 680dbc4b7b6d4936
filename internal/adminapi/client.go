package adminapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-go/weir/core/policies"
)

// Client calls the API. Its errors are those of the connection, and a *[Problem] for a request that was refused.
type Client struct {
	// URL is that of the server, such as "http://127.0.0.1:7070".
	URL string
	// Token is the secret of a token that the server has made.
	Token string
	// HTTP sends the requests; nil is http.DefaultClient.
	HTTP *http.Client
}

// Write says on what condition a change is made, and how.
type Write struct {
	// Revision is the one that was read: the change is refused with status 412 if another one holds by now. 0 expects
	// nothing of it, unless Create is set.
	Revision int64
	// Create expects that there is none yet.
	Create bool
	// Reason stands in the history.
	Reason string
	// Force writes what services said they cannot use.
	Force bool
	// Emergency writes at once where the app wants another owner to approve. It stands out until another owner has looked
	// at it.
	Emergency bool
	// Dry answers the differences and writes nothing. It is for Apply.
	Dry bool
	// Prune also deletes the policies that the document does not have. It is for Apply.
	Prune bool
}

// Apps returns the apps that may be seen, however many they are.
func (c *Client) Apps(ctx context.Context) ([]App, error) {
	var all []App
	for after := ""; ; {
		query := url.Values{"limit": {strconv.Itoa(MaxLimit)}}
		if after != "" {
			query.Set("after", after)
		}
		var out Apps
		if err := c.call(ctx, http.MethodGet, Path(PathApps), query, nil, nil, &out); err != nil {
			return nil, err
		}
		all = append(all, out.Apps...)
		if len(out.Apps) < MaxLimit {
			return all, nil
		}
		after = out.Apps[len(out.Apps)-1].App
	}
}

// PutApp makes an app known to the record, so that the policies of [policies.AllApps] reach it before it has policies,
// or changes its settings.
func (c *Client) PutApp(ctx context.Context, app string, settings Settings, w Write) (Written, error) {
	return c.write(ctx, http.MethodPut, Path(PathApp, app), w, settings)
}

// Adopt makes the record's document of an app later than all that services have seen, after the record was restored
// from a backup or replaced.
func (c *Client) Adopt(ctx context.Context, app string, w Write) (Written, error) {
	return c.write(ctx, http.MethodPost, Path(PathAdopt, app), w, nil)
}

// Document returns the document of an app as it is published.
func (c *Client) Document(ctx context.Context, app string) (*policies.Document, error) {
	var raw json.RawMessage
	if err := c.call(ctx, http.MethodGet, Path(PathPolicies, app), nil, nil, nil, &raw); err != nil {
		return nil, err
	}
	return policies.Decode(raw)
}

// Owned returns the policies that belong to an app, as Apply takes them.
func (c *Client) Owned(ctx context.Context, app string) (*policies.Document, error) {
	var raw json.RawMessage
	query := url.Values{"owned": {"true"}}
	if err := c.call(ctx, http.MethodGet, Path(PathPolicies, app), query, nil, nil, &raw); err != nil {
		return nil, err
	}
	return policies.Decode(raw)
}

// Policy returns a policy that belongs to app.
func (c *Client) Policy(ctx context.Context, app, name string) (Held, error) {
	var out Held
	err := c.call(ctx, http.MethodGet, Path(PathPolicy, app, name), nil, nil, nil, &out)
	return out, err
}

// Put writes a policy.
func (c *Client) Put(ctx context.Context, app, name string, p policies.Policy, w Write) (Written, error) {
	return c.write(ctx, http.MethodPut, Path(PathPolicy, app, name), w, PolicyOf(p))
}

// Delete deletes a policy: the code's holds again.
func (c *Client) Delete(ctx context.Context, app, name string, w Write) (Written, error) {
	return c.write(ctx, http.MethodDelete, Path(PathPolicy, app, name), w, nil)
}

// History returns up to limit versions of a policy before the revision before, the latest first. 0 of either leaves the
// choice to the server: the latest 100.
func (c *Client) History(ctx context.Context, app, name string, before int64, limit int) ([]Past, error) {
	query := url.Values{}
	if before > 0 {
		query.Set("after", strconv.FormatInt(before, 10))
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	var out History
	err := c.call(ctx, http.MethodGet, Path(PathHistory, app, name), query, nil, nil, &out)
	return out.Versions, err
}

// Rollback writes the version of a policy that a revision has, as a change of its own.
func (c *Client) Rollback(ctx context.Context, app, name string, to int64, w Write) (Written, error) {
	return c.write(ctx, http.MethodPost, Path(PathRollback, app, name), w, Rollback{To: to})
}

// Apply makes the policies of the app that a document names those of the document, all in one change.
func (c *Client) Apply(ctx context.Context, document []byte, w Write) (Written, error) {
	return c.write(ctx, http.MethodPost, Path(PathApply), w, document)
}

// Top returns the callers of a policy that all processes with a prefix have counted most in the last minutes.
func (c *Client) Top(ctx context.Context, policy, prefix string, minutes, limit int) (Top, error) {
	query := url.Values{}
	query.Set("prefix", prefix)
	query.Set("minutes", strconv.Itoa(minutes))
	query.Set("limit", strconv.Itoa(limit))
	var out Top
	err := c.call(ctx, http.MethodGet, Path(PathTop, policy), query, nil, nil, &out)
	return out, err
}

// Services returns what the processes of an app said of themselves in the last minute.
func (c *Client) Services(ctx context.Context, app string) (Services, error) {
	var out Services
	err := c.call(ctx, http.MethodGet, Path(PathServices, app), nil, nil, nil, &out)
	return out, err
}

// Path fills the places of one of the paths.
func Path(pattern string, values ...string) string {
	parts := strings.Split(pattern, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "{") {
			parts[i], values = url.PathEscape(values[0]), values[1:]
		}
	}
	return strings.Join(parts, "/")
}

func (c *Client) write(ctx context.Context, method, path string, w Write, body any) (Written, error) {
	query, header := url.Values{}, http.Header{}
	if w.Reason != "" {
		header.Set(HeaderReason, url.PathEscape(w.Reason))
	}
	for name, set := range map[string]bool{"force": w.Force, "emergency": w.Emergency, "dry_run": w.Dry, "prune": w.Prune} {
		if set {
			query.Set(name, "true")
		}
	}
	switch {
	case w.Create:
		header.Set("If-None-Match", "*")
	case w.Revision > 0:
		header.Set("If-Match", ETag(w.Revision))
	default:
		header.Set("If-Match", "*")
	}
	var out Written
	err := c.call(ctx, method, path, query, header, body, &out)
	return out, err
}

// HeaderReason is the header with the reason of a change, percent-encoded where it is not ASCII. It is in no URL, since
// these are in the logs of proxies.
const HeaderReason = "Weir-Reason"

// DecodeReason returns the reason that a header has. What is not percent-encoded is taken as it is.
func DecodeReason(header string) string {
	if text, err := url.PathUnescape(header); err == nil {
		return text
	}
	return header
}

// ETag returns a revision as a header has it.
func ETag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// maxAnswer bounds what a client reads of an answer: a thousand processes of 32 KiB.
const maxAnswer = 40 << 20

func (c *Client) call(
	ctx context.Context, method, path string, query url.Values, header http.Header, body, answer any,
) error {
	var reader io.Reader
	switch body := body.(type) {
	case nil:
	case []byte: // as somebody wrote it: mistakes in it are the server's to find
		reader = bytes.NewReader(body)
	default:
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("adminapi: %s %s: %w", method, path, err)
		}
		reader = bytes.NewReader(data)
	}
	address := strings.TrimSuffix(c.URL, "/") + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, address, reader)
	if err != nil {
		return fmt.Errorf("adminapi: %w", err)
	}
	maps.Copy(request.Header, header)
	request.Header.Set("Authorization", "Bearer "+c.Token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	stays := *client
	stays.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a change would become a GET
	response, err := stays.Do(request)
	if err != nil {
		return fmt.Errorf("adminapi: %w", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("adminapi: %s %s: %w", method, path, err)
	case len(data) > maxAnswer:
		return fmt.Errorf("adminapi: %s %s: the answer has more than %d bytes", method, path, maxAnswer)
	case response.StatusCode/100 != 2:
		return problemOf(response, data)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("adminapi: %s %s: %w", method, path, err)
	}
	return nil
}

// problemOf returns what a response says is wrong, whoever has sent it.
func problemOf(response *http.Response, data []byte) error {
	p := new(Problem)
	if err := json.Unmarshal(data, p); err != nil || p.Status == 0 {
		p = &Problem{Title: response.Status, Detail: fmt.Sprintf("%.200q", data)}
	}
	p.Status = response.StatusCode
	return p
}

// StatusOf returns the status of a refusal, or 0 if err is none.
func StatusOf(err error) int {
	var p *Problem
	if errors.As(err, &p) {
		return p.Status
	}
	return 0
}
