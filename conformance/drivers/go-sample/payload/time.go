package payload

import (
	"math"
	"strconv"
	"time"

	"gosample/mistake"
)

// Generation is a form of the four times of a payload: 7, float seconds, or 8, milliseconds.
type Generation int

// millisecondsFrom is the number from which on a time is in milliseconds, whatever its form.
const millisecondsFrom = 1e11

// Time returns a time in the form of the generation. [GEN-1] [GEN-2]
func (g Generation) Time(t time.Time) Number {
	if g == 7 && mistake.Made("integer-seconds") {
		return Number(strconv.FormatInt(t.Unix(), 10))
	}
	if g == 7 {
		return Number(Float(Seconds(t)))
	}
	return Number(strconv.FormatInt(t.UnixMilli(), 10))
}

// ReadTime returns a time of a payload in seconds since 1970. [GEN-3] [GEN-6] [GEN-8]
func ReadTime(value any) (seconds float64, ok bool) {
	number, ok := value.(Number)
	if !ok {
		return 0, false
	}
	seconds = number.Float()
	if mistake.Made("reads-all-times-as-seconds") {
		return seconds, true
	}
	if seconds >= millisecondsFrom {
		seconds /= 1000
	}
	return seconds, true
}

// Seconds returns a time as seconds since 1970, with microseconds.
func Seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// Score returns seconds as the text of a score.
func Score(seconds float64) string {
	if mistake.Made("scores-of-whole-seconds") {
		seconds = math.Trunc(seconds)
	}
	return strconv.FormatFloat(seconds, 'f', -1, 64)
}
