package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"

	"github.com/weir-go/weir/admin/internal/sqldb"
)

// maxJSONLine bounds a line that Links reads; longer ones cannot be rows.
const maxJSONLine = 1 << 20

// Links finds the links of rows in a log with the lines of Options.Lines, in which there may be other lines too.
func Links(from io.Reader) ([]sqldb.Link, error) {
	var links []sqldb.Link
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxJSONLine)
	for lines.Scan() {
		start := bytes.IndexByte(lines.Bytes(), '{') // what collects logs may write a time before it
		if start < 0 {
			continue
		}
		var line jsonLine
		if err := json.Unmarshal(lines.Bytes()[start:], &line); err != nil || line.Seq == 0 || line.Outcome == unknown {
			continue
		}
		links = append(links, sqldb.Link{Seq: line.Seq, Hash: line.Hash})
	}
	return links, lines.Err()
}
