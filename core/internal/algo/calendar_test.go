package algo_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/internal/algo"
	"github.com/weir-go/weir/internal/race"
)

// zones are all kinds of them: clocks that change at midnight (Santiago, Asuncion,
// Havana, Beirut, Cairo, Azores, Scoresbysund), one minute after it (St_Johns), by half
// an hour (Lord_Howe), by three hours (Casey), by two (Troll), whenever somebody decides (Gaza,
// Casablanca, Tehran, Caracas, Pyongyang), over a whole day (Apia, Fakaofo), or never.
var zones = []string{
	"UTC", "Etc/GMT+12", "Etc/GMT-14", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Lisbon",
	"Europe/Moscow", "Europe/Istanbul", "Europe/Chisinau", "America/New_York", "America/Los_Angeles",
	"America/St_Johns", "America/Santiago", "America/Asuncion", "America/Havana", "America/Sao_Paulo",
	"America/Caracas", "America/Nuuk", "America/Scoresbysund", "America/Mexico_City", "America/Metlakatla",
	"Atlantic/Azores", "Africa/Cairo", "Africa/Casablanca", "Africa/Juba", "Asia/Beirut", "Asia/Amman",
	"Asia/Gaza", "Asia/Tehran", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Pyongyang", "Asia/Tokyo",
	"Australia/Sydney", "Australia/Lord_Howe", "Australia/Eucla", "Antarctica/Casey", "Antarctica/Troll",
	"Pacific/Apia", "Pacific/Fakaofo", "Pacific/Chatham", "Pacific/Kiritimati", "Pacific/Easter",
}

// calendarWindow is a window of the calendar, and the end of the next one.
type calendarWindow struct{ start, end, next int64 }

func windowAt(a algo.Algorithm, now int64) calendarWindow {
	b := a.AppendTake(nil, 1, 0, now)
	return calendarWindow{b[4], b[5], b[6]}
}

// onClock returns the time that a zone's clocks show, as if it were UTC: so that it can be compared.
func onClock(at int64, zone *time.Location) time.Time {
	t := time.UnixMicro(at).In(zone)
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

func utcOffset(at int64, zone *time.Location) int {
	_, o := time.UnixMicro(at).In(zone).Zone()
	return o
}

// beginning is that of the unit which has this date.
func beginning(unit string, clock time.Time) time.Time {
	clock = clock.Truncate(24 * time.Hour)
	for unit == "week" && clock.Weekday() != time.Monday || unit == "month" && clock.Day() != 1 {
		clock = clock.AddDate(0, 0, -1)
	}
	return clock
}

// Whatever clocks do: each window contains the instants it is found for, the next
// begins where it ends, and it begins when the clocks first show its beginning.
func TestCalendarWindows(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same each time
	from, to := time.Date(2005, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range zones {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		var instants []int64
		for at := from.In(zone); at.Before(to); {
			_, change := at.ZoneBounds()
			if change.IsZero() {
				break
			}
			if !change.After(at) { // see zoneEnd
				at = at.Add(24 * time.Hour)
				continue
			}
			for _, d := range []time.Duration{0, time.Microsecond, time.Minute, 29 * time.Minute, time.Hour, 4 * time.Hour, 25 * time.Hour, 40 * 24 * time.Hour} {
				instants = append(instants, change.Add(d).UnixMicro(), change.Add(-d).UnixMicro(), change.Add(d-1).UnixMicro())
			}
			at = change
		}
		for range 100 {
			instants = append(instants, from.UnixMicro()+r.Int64N(to.Sub(from).Microseconds()))
		}
		if race.Enabled { // it is slow, and nothing here is concurrent
			r.Shuffle(len(instants), func(i, j int) { instants[i], instants[j] = instants[j], instants[i] })
			instants = instants[:len(instants)/10]
		}
		for _, unit := range []string{"minute", "hour", "day", "week", "month"} {
			period, err := algo.CalendarPeriod(unit + " " + name)
			require.NoError(t, err)
			a := newFixed(t, algo.Params{Rate: 1, Period: period, Align: unit + " " + name})
			for _, now := range instants {
				w := windowAt(a, now)
				if msg := wrongWindow(a, unit, period, zone, now, w, r); msg != "" {
					t.Fatalf("%s %s at %v: %s: %v to %v", unit, name, time.UnixMicro(now).In(zone), msg,
						time.UnixMicro(w.start).In(zone), time.UnixMicro(w.end).In(zone))
				}
			}
		}
	}
}

func wrongWindow(a algo.Algorithm, unit string, period int64, zone *time.Location, now int64, w calendarWindow, r *rand.Rand) string {
	switch after := windowAt(a, w.end); {
	case w.start > now || w.end <= now || w.next <= w.end:
		return "out of order"
	case windowAt(a, w.start) != w || windowAt(a, w.end-1) != w || windowAt(a, w.start+r.Int64N(w.end-w.start)) != w:
		return "not one window"
	case after.start != w.end || after.end != w.next || windowAt(a, w.start-1).end != w.start:
		return "the neighbours do not join"
	case w.end-w.start > period+4*3600*second:
		return "too long"
	}
	if unit == "minute" || unit == "hour" {
		length := time.Duration(period) * time.Microsecond
		changed := utcOffset(w.end-1, zone) != utcOffset(w.end, zone)
		switch clock := onClock(w.end, zone); {
		case !changed && !clock.Equal(clock.Truncate(length)):
			return "does not end with the unit"
		case utcOffset(w.start, zone) != utcOffset(w.end-1, zone):
			return "the clocks change within"
		case !onClock(w.start, zone).Truncate(length).Equal(onClock(w.end-1, zone).Truncate(length)):
			return "the clocks show more than one unit"
		}
		return ""
	}
	if w.end-w.start < period-4*24*3600*second && unit == "month" || w.end-w.start < 20*3600*second {
		return "too short"
	}
	begins := beginning(unit, onClock(w.end, zone))
	if onClock(w.start, zone).Before(beginning(unit, onClock(w.start, zone))) {
		return "begins before its beginning"
	}
	for step := range int64(30) { // the last five hours, and all of it
		for _, at := range []int64{w.end - 1 - step*600*second, w.end - 1 - r.Int64N(w.end-w.start)} {
			if at >= w.start && !onClock(at, zone).Before(begins) {
				return "the clocks have shown the end before"
			}
		}
	}
	// Where midnight exists, it is the one.
	if m := time.Date(begins.Year(), begins.Month(), begins.Day(), 0, 0, 0, 0, zone); onClock(m.UnixMicro(), zone).Equal(begins) &&
		m.UnixMicro() < w.end {
		return "does not end at midnight"
	}
	return ""
}

// Peers that reckon with the offset of today are wrong on days when it changes, begin
// weeks on Thursday, and have no months.
func TestCalendarDays(t *testing.T) {
	for _, c := range []struct{ align, now, start, end, next string }{
		{"day UTC", "2026-05-03T10:00:00Z", "2026-05-03T00:00:00Z", "2026-05-04T00:00:00Z", "2026-05-05T00:00:00Z"},
		{"day Europe/Berlin", "2026-03-29T10:00:00+02:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", "2026-03-31T00:00:00+02:00"},
		{"day Europe/Berlin", "2026-10-25T02:30:00+02:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00", "2026-10-27T00:00:00+01:00"},
		{"week Europe/Berlin", "2026-03-29T23:59:59+02:00", "2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00", "2026-04-06T00:00:00+02:00"},
		{"week Asia/Kolkata", "2025-01-01T00:00:00+05:30", "2024-12-30T00:00:00+05:30", "2025-01-06T00:00:00+05:30", "2025-01-13T00:00:00+05:30"},
		{"month Europe/Berlin", "2028-02-29T12:00:00+01:00", "2028-02-01T00:00:00+01:00", "2028-03-01T00:00:00+01:00", "2028-04-01T00:00:00+02:00"},
		{"month America/New_York", "2025-12-31T23:59:59-05:00", "2025-12-01T00:00:00-05:00", "2026-01-01T00:00:00-05:00", "2026-02-01T00:00:00-05:00"},
		// The clocks go from 24:00 to 1:00, and from 24:00 back to 23:00.
		{"day America/Santiago", "2024-09-08T12:00:00-03:00", "2024-09-08T01:00:00-03:00", "2024-09-09T00:00:00-03:00", "2024-09-10T00:00:00-03:00"},
		{"day America/Santiago", "2024-04-06T23:30:00-04:00", "2024-04-06T00:00:00-03:00", "2024-04-07T00:00:00-04:00", "2024-04-08T00:00:00-04:00"},
		// From 1:00 back to 0:00: the day has begun already.
		{"day America/Havana", "2024-11-03T00:30:00-05:00", "2024-11-03T00:00:00-04:00", "2024-11-04T00:00:00-05:00", "2024-11-05T00:00:00-05:00"},
		// From 0:01 back to 23:01: the new day has begun, and begins no second time.
		{"day America/St_Johns", "2010-11-07T00:00:30-02:30", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30", "2010-11-09T00:00:00-03:30"},
		{"day America/St_Johns", "2010-11-06T23:30:00-03:30", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30", "2010-11-09T00:00:00-03:30"},
		// 30 December 2011 was skipped, a Friday.
		{"day Pacific/Apia", "2011-12-29T12:00:00-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		{"day Pacific/Apia", "2011-12-28T12:00:00-10:00", "2011-12-28T00:00:00-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"week Pacific/Apia", "2011-12-31T12:00:00+14:00", "2011-12-26T00:00:00-10:00", "2012-01-02T00:00:00+14:00", "2012-01-09T00:00:00+14:00"},
		// An hour that the clocks repeat is two, one that they leave by half is half.
		{"hour America/New_York", "2024-11-03T01:10:00-04:00", "2024-11-03T01:00:00-04:00", "2024-11-03T01:00:00-05:00", "2024-11-03T02:00:00-05:00"},
		{"hour Australia/Lord_Howe", "2024-04-07T01:40:00+11:00", "2024-04-07T01:00:00+11:00", "2024-04-07T01:30:00+10:30", "2024-04-07T02:00:00+10:30"},
		{"hour Australia/Lord_Howe", "2024-10-06T01:40:00+10:30", "2024-10-06T01:00:00+10:30", "2024-10-06T02:30:00+11:00", "2024-10-06T03:00:00+11:00"},
		{"hour Asia/Kathmandu", "2024-04-07T01:40:00Z", "2024-04-07T01:15:00Z", "2024-04-07T02:15:00Z", "2024-04-07T03:15:00Z"},
		{"minute Asia/Kathmandu", "2024-04-07T01:40:59.999999Z", "2024-04-07T01:40:00Z", "2024-04-07T01:41:00Z", "2024-04-07T01:42:00Z"},
		// Zones once had offsets of odd seconds, and time began in the evening.
		{"minute Africa/Monrovia", "1971-06-01T00:00:00Z", "1971-05-31T23:59:30Z", "1971-06-01T00:00:30Z", "1971-06-01T00:01:30Z"},
		{"hour America/New_York", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z", "1970-01-01T02:00:00Z"},
		{"month America/New_York", "1970-01-01T00:00:00.000001Z", "1969-12-01T05:00:00Z", "1970-01-01T05:00:00Z", "1970-02-01T05:00:00Z"},
	} {
		period, err := algo.CalendarPeriod(c.align)
		require.NoError(t, err)
		w := windowAt(newFixed(t, algo.Params{Rate: 1, Period: period, Align: c.align}), microsAt(t, c.now))
		assert.Equal(t, calendarWindow{microsAt(t, c.start), microsAt(t, c.end), microsAt(t, c.next)}, w, "%s at %s: %v to %v",
			c.align, c.now, time.UnixMicro(w.start).UTC(), time.UnixMicro(w.end).UTC())
	}
}

func microsAt(t *testing.T, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at.UnixMicro()
}

func TestCalendarPeriod(t *testing.T) {
	for align, want := range map[string]time.Duration{
		"minute UTC": time.Minute, "hour Asia/Tokyo": time.Hour, "day Europe/Berlin": 24 * time.Hour,
		"week Pacific/Apia": 7 * 24 * time.Hour, "month Etc/GMT+3": 31 * 24 * time.Hour,
	} {
		us, err := algo.CalendarPeriod(align)
		require.NoError(t, err, align)
		assert.Equal(t, want.Microseconds(), us, align)
	}
	for align, want := range map[string]string{
		"":                 `the Align "" begins with no unit of the calendar; give "epoch", or one of the units minute, hour, day, week, month and a zone`,
		"year UTC":         `the Align "year UTC" begins with no unit`,
		"Day UTC":          `the Align "Day UTC" begins with no unit`,
		" day UTC":         `the Align " day UTC" begins with no unit`,
		"Europe/Berlin":    `the Align "Europe/Berlin" begins with no unit`,
		"epoch UTC":        `the Align "epoch UTC" begins with no unit`,
		"day":              `the Align "day" has no time zone; name one, as in "day Europe/Berlin" or "day UTC"`,
		"day ":             `has no time zone`,
		"day Local":        `zone "Local": machines differ; name one, such as Europe/Berlin`,
		"day localtime":    `zone "localtime": machines differ`,
		"day  UTC":         `zone " UTC": not found`,
		"day UTC ":         `zone "UTC ": not found`,
		"day Mars/Olympus": `zone "Mars/Olympus": not found; give a name such as Europe/Berlin, and import time/tzdata where the machine has no time zone database`,
		"day ../etc":       `zone "../etc": not found`,
	} {
		us, err := algo.CalendarPeriod(align)
		require.ErrorContains(t, err, want, "%q", align)
		assert.Zero(t, us)
		if align != "" {
			_, err = fixedWindow.New(algo.Params{Rate: 1, Period: day, Align: align})
			require.ErrorContains(t, err, want, "%q", align)
		}
	}
}

// Decisions neither search nor allocate, and many goroutines may decide at once.
func TestCalendarRemembers(t *testing.T) {
	a := newFixed(t, algo.Params{Rate: 100, Period: day, Align: "day Europe/Berlin"})
	b, s := make([]int64, 0, 8), []int64{0, 0}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		a.Load(s, epoch)
		if a.Admits(s, epoch, 1, 0) {
			a.Charge(s, epoch, 1)
		}
		a.AppendTake(b, 1, 0, epoch)
	}))
	want := map[int64]calendarWindow{}
	for i := range int64(8) {
		now := epoch + i*6*3600*second
		want[now] = windowAt(a, now)
	}
	var wg sync.WaitGroup
	for i := range int64(4) {
		wg.Go(func() {
			for j := range int64(1000) {
				now := epoch + (i+j)%8*6*3600*second
				if got := windowAt(a, now); got != want[now] {
					panic(fmt.Sprintf("%d: %v, want %v", now, got, want[now]))
				}
			}
		})
	}
	wg.Wait()
}

// On the last day of a leap year, Go has answered that a zone's offset ends before it
// begins, from the year on in which a zone's table ends; see zoneEnd. A window that is
// never found would hold a lock for ever.
func TestCalendarLastDaysOfLeapYears(t *testing.T) {
	for _, zone := range zones {
		for _, unit := range []string{"minute", "hour", "day", "week", "month"} {
			align := unit + " " + zone
			period, err := algo.CalendarPeriod(align)
			require.NoError(t, err)
			a := newKind(t, 'f', algo.Params{Rate: 1, Burst: 1, Period: period, Align: align})
			for year := 2024; year < 2112; year += 4 {
				for _, d := range []time.Duration{-31 * 24 * time.Hour, -30 * time.Hour, -24 * time.Hour, -12 * time.Hour, -time.Hour, 0, time.Hour} {
					now := time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).UnixMicro()
					w := windowAt(a.Algorithm, now)
					require.True(t, w.start <= now && now < w.end && w.end < w.next, "%s in %d: %+v around %d", align, year, w, now)
					following := windowAt(a.Algorithm, w.end)
					require.Equal(t, w.next, following.end, "%s in %d", align, year)
				}
			}
		}
	}
}
