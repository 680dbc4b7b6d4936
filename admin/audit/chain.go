package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// form is the first field of the encoding of a row.
const form = "weir-audit-1"

// link returns the hash of a row, if before is that of the row before, or "".
func (r *Row) link(before string) (string, error) {
	var previous [sha256.Size]byte
	if n, err := hex.Decode(previous[:], []byte(before[:min(len(before), 2*len(previous))])); err != nil ||
		2*n != len(before) || n != 0 && n != len(previous) {
		return "", fmt.Errorf("audit: the hash before row %d is %.80q; it should be %d hexadecimal digits: verify the audit",
			r.Seq, before, 2*len(previous))
	}
	b := append(make([]byte, 0, 512), previous[:]...)
	text := func(s string) { b = append(binary.BigEndian.AppendUint64(b, uint64(len(s))), s...) }
	number := func(n int64) { b = binary.BigEndian.AppendUint64(b, uint64(n)) }
	text(form)
	number(r.Seq)
	number(r.At.UnixMicro())
	text(r.By.ID)
	text(r.By.Name)
	text(r.App)
	text(r.Policy)
	text(r.Action)
	text(r.Reason)
	number(r.Revision)
	number(r.Was)
	number(int64(bit(r.Forced)))
	number(int64(bit(r.Emergency)))
	text(r.Mark)
	text(r.Detail)
	text(r.Outcome)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// mark returns what the chain has in place of a key.
func mark(secret, key string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(key))
	return hex.EncodeToString(h.Sum(nil))
}
