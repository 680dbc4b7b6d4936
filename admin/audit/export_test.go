package audit

import "time"

// SetMinute sets after how long refused attempts are written.
func (l *Log) SetMinute(d time.Duration) { l.minute = d }
