package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// strictly reads a body of a few numbers. Policies and documents are read by core/policies, which finds a name that
// stands twice.
func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the body")
	}
	return nil
}
