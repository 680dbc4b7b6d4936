package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// strictly reads a body of one member. Policies and documents are read by core/policies. Like that it refuses a name
// that stands twice, of which encoding/json would take the last one.
func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if bytes.Count(data, []byte(":")) > 1 {
		return errors.New("there is more than one member")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the body")
	}
	return nil
}
