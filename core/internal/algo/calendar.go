package algo

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// AlignEpoch aligns windows to multiples of the period since the epoch.
const AlignEpoch = "epoch"

// CalendarPeriod is the nominal period, in microseconds, of an alignment to the
// calendar such as "day Europe/Berlin". The error says what is wrong with the text.
func CalendarPeriod(align string) (int64, error) {
	c, err := newCalendar(align)
	if err != nil {
		return 0, err
	}
	return c.unit.period, nil
}

// CalendarUnit is the name of the unit of that nominal period, or "".
func CalendarUnit(period int64) string {
	for _, u := range calendarUnits {
		if u.period == period {
			return u.name
		}
	}
	return ""
}

// IsCalendarUnit reports whether the calendar has a unit of that name.
func IsCalendarUnit(name string) bool {
	return slices.ContainsFunc(calendarUnits[:], func(u calendarUnit) bool { return u.name == name })
}

// Month is the nominal period of a month, in microseconds: that of the longest.
const Month = 31 * 86400e6

// calendarUnit is one by which a calendar counts.
type calendarUnit struct {
	name   string
	period int64 // nominal for those of whole days
	// floor is the midnight at which the unit that has a date begins, and the one
	// at which the next does, both written as if in UTC. Others have none.
	floor func(time.Time) (midnight, next time.Time)
}

var calendarUnits = [...]calendarUnit{
	{"minute", 60e6, nil},
	{"hour", 3600e6, nil},
	{"day", 86400e6, func(t time.Time) (_, _ time.Time) {
		y, m, d := t.Date()
		return midnight(y, m, d), midnight(y, m, d+1)
	}},
	{"week", 7 * 86400e6, func(t time.Time) (_, _ time.Time) {
		y, m, d := t.Date()
		d -= (int(t.Weekday()) + 6) % 7 // Monday
		return midnight(y, m, d), midnight(y, m, d+7)
	}},
	{"month", Month, func(t time.Time) (_, _ time.Time) {
		y, m, _ := t.Date()
		return midnight(y, m, 1), midnight(y, m+1, 1)
	}},
}

func midnight(y int, m time.Month, d int) time.Time {
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// calendar divides time into the units of a calendar in one zone. It is safe for
// concurrent use.
//
// A day, week or month begins at the first instant when the zone's clocks show its
// first midnight or later: so each begins once, also where clocks are put back over
// midnight, and none that a zone has skipped is a window. Minutes and hours begin
// anew whenever the clocks are changed: the hour that clocks repeat is two.
type calendar struct {
	unit calendarUnit
	zone *time.Location
	last atomic.Pointer[calendarWindow] // found last: nearly every decision falls into it
}

// calendarWindow is [start, end), and the one after it is [end, next).
type calendarWindow struct{ start, end, next int64 }

func newCalendar(align string) (*calendar, error) {
	name, zone, _ := strings.Cut(align, " ")
	c := new(calendar)
	names := make([]string, len(calendarUnits))
	for i, u := range calendarUnits {
		if names[i] = u.name; u.name == name {
			c.unit = u
		}
	}
	switch {
	case c.unit.name == "":
		return nil, fmt.Errorf(`the Align %.80q begins with no unit of the calendar; give %q, or one of the units %s and a zone, as in "day Europe/Berlin"`,
			align, AlignEpoch, strings.Join(names, ", "))
	case zone == "":
		return nil, fmt.Errorf(`the Align %q has no time zone; name one, as in "%s Europe/Berlin" or "%[2]s UTC"`, align, name)
	case zone == "Local" || zone == "localtime": // the latter is a file of many databases
		return nil, fmt.Errorf(`zone %q: machines differ; name one, such as Europe/Berlin`, zone)
	}
	var err error
	if c.zone, err = time.LoadLocation(zone); err != nil {
		return nil, fmt.Errorf("zone %.80q: not found; give a name such as Europe/Berlin, and import time/tzdata where the machine has no time zone database: %w",
			zone, err)
	}
	return c, nil
}

// end is the end of the window that contains now.
func (c *calendar) end(now int64) int64 {
	if w := c.last.Load(); w != nil && w.end <= now && now < w.next {
		return w.next
	}
	return c.around(now).end
}

// around is the window that contains now.
func (c *calendar) around(now int64) *calendarWindow {
	if w := c.last.Load(); w != nil && w.start <= now && now < w.end {
		return w
	}
	w := new(calendarWindow)
	w.start, w.end = c.bounds(now)
	_, w.next = c.bounds(w.end)
	c.last.Store(w)
	return w
}

// bounds are the start and the end of the window that contains now.
func (c *calendar) bounds(now int64) (start, end int64) {
	if c.unit.floor == nil {
		return c.short(now)
	}
	first, next := c.unit.floor(time.UnixMicro(now).In(c.zone))
	start, end = c.reach(first), c.reach(next)
	for end <= now { // skipped, or its beginning was shown before clocks were put back
		_, after := c.unit.floor(next)
		start, end, next = end, c.reach(after), after
	}
	return start, end
}

// reach is the first instant when the zone's clocks show local or later. Instants
// between two changes of the clocks are in order; the changes are not.
func (c *calendar) reach(local time.Time) int64 {
	t := local.Add(-26 * time.Hour) // no zone is that far from UTC
	for {
		t = t.In(c.zone)
		_, offset := t.Zone()
		until := zoneEnd(t)
		if at := local.Add(-time.Duration(offset) * time.Second); t.Before(at) {
			t = at
		}
		if until.IsZero() || t.Before(until) {
			return t.UnixMicro()
		}
		t = until
	}
}

// short is bounds for units that begin anew whenever the clocks are changed.
func (c *calendar) short(now int64) (start, end int64) {
	t := time.UnixMicro(now).In(c.zone)
	_, offset := t.Zone()
	past := (now + int64(offset)*1e6) % c.unit.period
	if past < 0 {
		past += c.unit.period
	}
	start = now - past
	end = start + c.unit.period
	// Zones also have bounds at which only the name changes.
	for from, _ := t.ZoneBounds(); !from.IsZero() && from.UnixMicro() > start; {
		before := from.Add(-1)
		if _, o := before.Zone(); o != offset {
			start = from.UnixMicro()
		}
		from, _ = before.ZoneBounds()
	}
	for until := zoneEnd(t); !until.IsZero() && until.UnixMicro() < end; until = zoneEnd(until) {
		if _, o := until.Zone(); o != offset {
			end = until.UnixMicro()
		}
	}
	return start, end
}

// zoneEnd is an instant after t until which the zone's offset is the same, or zero if it
// never changes again. On the last day of a leap year [time.Time.ZoneBounds] may answer
// with one that is not after t (go.dev/issue/81583).
func zoneEnd(t time.Time) time.Time {
	_, until := t.ZoneBounds()
	if !until.IsZero() && !until.After(t) {
		return t.Add(24 * time.Hour)
	}
	return until
}
