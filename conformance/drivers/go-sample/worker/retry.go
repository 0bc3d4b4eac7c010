package worker

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"gosample/mistake"
	"gosample/payload"
)

// defaultLimit is how many retries `"retry":true` allows.
const defaultLimit = 25

// mostMessage is how many characters of an error's message are stored. [RETRY-3]
const mostMessage = 10000

// failure is an error of a job as its payload holds it.
type failure struct {
	err            error
	class, message string
	backtrace      []string
}

// fate is the place of a failed job.
type fate int

const (
	retried fate = iota
	exhausted
	dropped // by "retry":false, or discarded
)

// verdict is the decision about a failed job.
type verdict struct {
	fate fate
	job  payload.Object
	due  float64 // of a retry

	wished bool // by the definition
}

// judge takes a job that failed through the seven steps of section 13. [RETRY-18]
func judge(
	job payload.Object, queue string, definition *Definition, failed failure, generation payload.Generation, now time.Time,
) verdict {
	limit, drop := readLimit(&job, definition)
	if drop {
		return verdict{fate: dropped, job: job}
	}
	if name, _ := job.Get("retry_queue"); isName(name) && !mistake.Made("ignores-retry-queue") {
		queue = name.(string)
	}
	if _, present := job.Get("queue"); !present {
		job.Prepend("queue", queue)
	}
	job.Set("queue", queue)
	if _, present := job.Get("retry"); !present {
		job.Prepend("retry", storedRetry(definition))
	}
	job.Set("error_message", message(failed.message))
	job.Set("error_class", failed.class)
	if mistake.Made("one-error-class") {
		job.Set("error_class", "error")
	}
	count, first := nextCount(job)
	if first {
		job.Set("failed_at", generation.Time(now))
	}
	if !first {
		job.Set("retried_at", generation.Time(now))
	}
	job.Set("retry_count", payload.Number(count.String()))
	if mistake.Made("retry-count-as-text") {
		job.Set("retry_count", count.String())
	}
	if lines, asked := backtrace(job, failed.backtrace); asked {
		job.Set("error_backtrace", lines)
	}
	if isExhausted(&job, count, limit, first, generation, now) {
		return verdict{fate: exhausted, job: job}
	}
	wish := askDelay(job, definition, count, failed.err)
	switch {
	case wish.Discard && mistake.Made("kills-discarded-jobs"):
		return verdict{fate: exhausted, job: job, wished: true}
	case wish.Discard:
		return verdict{fate: dropped, job: job, wished: true}
	case wish.Kill && mistake.Made("drops-wished-kills"):
		return verdict{fate: dropped, job: job}
	case wish.Kill:
		return verdict{fate: exhausted, job: job, wished: true}
	}
	return verdict{fate: retried, job: job, due: payload.Seconds(now) + delay(count, wish.Seconds)}
}

// readLimit returns how many retries the job has, and whether it is dropped at its first failure. A
// null in `retry` is replaced by the definition's. [RETRY-1]
func readLimit(job *payload.Object, definition *Definition) (limit *big.Int, drop bool) {
	value, present := job.Get("retry")
	if value == nil {
		class, _ := job.Get("class")
		value = storedRetry(definition)
		if definition == nil && mistake.Made("drops-unknown-classes-without-retry") {
			value = false
		}
		if !isName(class) && !mistake.Made("retries-without-class") { // no definition can decide [EXEC-8]
			value = payload.Number("0")
		} else if present {
			job.Set("retry", value)
		}
	}
	switch value := value.(type) {
	case bool:
		return big.NewInt(defaultLimit), !value
	case payload.Number:
		if value.IsInteger() {
			limit, _ := new(big.Int).SetString(string(value), 10)
			if mistake.Made("limit-of-32-bits") {
				limit = big.NewInt(int64(int32(limit.Int64())))
			}
			return limit, false
		}
	}
	return big.NewInt(defaultLimit), false
}

func storedRetry(definition *Definition) any {
	if definition == nil || definition.Retry == nil {
		return true
	}
	if count, ok := definition.Retry.(int); ok {
		return payload.Number(strconv.Itoa(count))
	}
	return definition.Retry
}

// nextCount returns the new `retry_count`, and whether this is the first failure. [RETRY-2] [RETRY-19]
func nextCount(job payload.Object) (count *big.Int, first bool) {
	value, _ := job.Get("retry_count")
	number, ok := value.(payload.Number)
	if !ok {
		return new(big.Int), true
	}
	before, ok := integerPart(number)
	if !ok {
		return new(big.Int), true
	}
	if mistake.Made("counts-from-1") && before.Sign() == 0 {
		before = big.NewInt(1)
	}
	return before.Add(before, big.NewInt(1)), false
}

// integerPart cuts a fraction off.
func integerPart(number payload.Number) (*big.Int, bool) {
	if number.IsInteger() {
		return new(big.Int).SetString(string(number), 10)
	}
	value := number.Float()
	if math.IsInf(value, 0) {
		return nil, false
	}
	whole, _ := big.NewFloat(value).Int(nil)
	return whole, true
}

// isExhausted reports whether no attempt is left; `retry_for` replaces the count. [RETRY-5] [RETRY-6]
func isExhausted(
	job *payload.Object, count, limit *big.Int, first bool, generation payload.Generation, now time.Time,
) bool {
	value, _ := job.Get("retry_for")
	seconds, ok := value.(payload.Number)
	if ok && seconds.Float() == 0 && mistake.Made("retry-for-0-is-none") {
		ok = false
	}
	if ok && count.Cmp(limit) >= 0 && mistake.Made("both-limits-count") {
		return true
	}
	if !ok {
		if mistake.Made("one-retry-too-few") {
			return count.Cmp(new(big.Int).Sub(limit, big.NewInt(1))) >= 0
		}
		return count.Cmp(limit) >= 0
	}
	allowed := seconds.Float()
	if allowed <= 0 {
		return true
	}
	if first {
		return false
	}
	stored, _ := job.Get("failed_at")
	since, isTime := payload.ReadTime(stored)
	if !isTime && mistake.Made("exhausts-without-failed-at") {
		return true
	}
	if !isTime || since > payload.Seconds(now) { // nothing would ever end the retries [RETRY-14]
		job.Set("failed_at", generation.Time(now))
		return false
	}
	return payload.Seconds(now)-since > allowed
}

// backtrace returns `error_backtrace`, if the job asks for one. [RETRY-8] [RETRY-19] [RETRY-22]
func backtrace(job payload.Object, lines []string) (stored string, asked bool) {
	value, _ := job.Get("backtrace")
	if number, ok := value.(payload.Number); ok {
		switch {
		case mistake.Made("backtrace-0-is-none") && number == "0":
			return "", false
		case mistake.Made("last-lines-of-the-backtrace"):
			wanted := min(max(int(number.Float()), 0), len(lines))
			lines, value = lines[len(lines)-wanted:], true
		}
	}
	keep := 0
	switch value := value.(type) {
	case nil:
		return "", false
	case bool:
		if !value {
			return "", false
		}
		keep = len(lines)
	case payload.Number:
		wanted := math.Trunc(value.Float())
		if wanted < 0 {
			wanted += float64(len(lines))
		}
		keep = int(min(max(wanted, 0), float64(len(lines))))
	}
	items := []any{}
	for _, line := range lines[:keep] {
		items = append(items, strings.ToValidUTF8(line, "\uFFFD"))
	}
	text, _ := payload.Encode(items, "")
	var packed bytes.Buffer
	var stream io.WriteCloser = zlib.NewWriter(&packed)
	stream.Write([]byte(text))
	if mistake.Made("backtrace-not-closed") {
		stream.(interface{ Flush() error }).Flush()
	} else {
		stream.Close()
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes()), true
}

// message makes a message that can be stored. [RETRY-3]
func message(text string) string {
	if mistake.Made("drops-invalid-bytes-of-messages") {
		text = strings.ToValidUTF8(text, "")
	}
	if most := mostMessage * 4; len(text) > most { // no character has more bytes
		text = text[:most]
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	count := 0
	for place := range text {
		if count == mostMessage {
			return text[:place]
		}
		count++
	}
	return text
}

// askDelay asks the definition for its wish; an error means the default. [RETRY-24]
func askDelay(job payload.Object, definition *Definition, count *big.Int, err error) (wish Wish) {
	if definition == nil || definition.Delay == nil {
		return Wish{}
	}
	defer func() {
		if problem := recover(); problem != nil {
			wish = Wish{}
		}
	}()
	wish, problem := definition.Delay(job, count.Int64(), err)
	if problem != nil {
		return Wish{}
	}
	return wish
}

// delay returns the seconds until the next attempt. [RETRY-4] [RETRY-11]
func delay(count *big.Int, wish float64) float64 {
	c, _ := new(big.Float).SetInt(count).Float64()
	c = max(c, 0)
	base := math.Pow(c, 4) + 15
	if math.Trunc(wish) < 0 && mistake.Made("takes-negative-delays") {
		return wish
	}
	if wish = math.Trunc(wish); wish > 0 {
		if mistake.Made("no-draw-for-chosen-delays") {
			return wish
		}
		base = wish
	}
	switch {
	case mistake.Made("no-draw"):
		return base
	case mistake.Made("draw-of-ten-numbers"): // as up to generation 7.3
		return base + draw(10)*(c+1)
	}
	return base + draw(10*(c+1))
}

// isName reports whether a value names a queue or a class.
func isName(value any) bool {
	text, ok := value.(string)
	return ok && text != ""
}

// describe makes a failure of an error.
func describe(err error) failure {
	result := failure{err: err, class: strings.TrimPrefix(fmt.Sprintf("%T", err), "*"), message: err.Error()}
	if traced, ok := err.(interface{ Backtrace() []string }); ok {
		result.backtrace = traced.Backtrace()
	}
	return result
}
