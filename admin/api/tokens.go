package api

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/weir-go/weir/admin/rights"
)

// MinSecret is the number of characters that the secret of a token has at least.
const MinSecret = 20

// Tokens reads a file with a line "name:secret" for each person or program that may use the API, and returns a function
// for Options.Authenticate that knows them by "Authorization: Bearer" and the secret. Empty lines, and those that begin
// with "#", are left out, as are spaces around a name and a secret.
func Tokens(file io.Reader) (func(*http.Request) (*rights.Person, error), error) {
	type token struct {
		name string
		sum  [sha256.Size]byte
	}
	var tokens []token
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, secret, _ := strings.Cut(line, ":")
		name, secret = strings.TrimSpace(name), strings.TrimSpace(secret)
		if name == "" || len(name) > 64 || len(secret) < MinSecret {
			return nil, fmt.Errorf("api: line %d of the tokens is no name of 1 to 64 characters, \":\" and a secret of at least %d; "+
				"give one such as \"anna:\" and what \"openssl rand -hex 20\" prints", n, MinSecret)
		}
		sum := sha256.Sum256([]byte(secret))
		for _, other := range tokens {
			if other.sum == sum {
				return nil, fmt.Errorf("api: line %d of the tokens has the secret of %q, and the history could not tell them apart; "+
					"give each its own", n, other.name)
			}
		}
		tokens = append(tokens, token{name, sum})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("api: the tokens: %w", err)
	}
	if len(tokens) == 0 {
		return nil, errors.New("api: there are no tokens, so that nobody could use the API; give a line \"name:secret\"")
	}
	return func(r *http.Request) (*rights.Person, error) {
		scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, errors.New("no token")
		}
		sum := sha256.Sum256([]byte(strings.TrimSpace(secret)))
		var found *rights.Person
		for _, t := range tokens { // all of them, so that time does not tell which was nearly right
			if subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 {
				found = &rights.Person{ID: "local:" + t.name, Name: t.name, Admin: true}
			}
		}
		return found, nil
	}, nil
}
