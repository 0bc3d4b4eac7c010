package worker

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

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
	if drop && !mistake.Made("kills-retry-false") {
		return verdict{fate: dropped, job: job}
	}
	if name, _ := job.Get("retry_queue"); isName(name) && !mistake.Made("ignores-retry-queue") {
		queue = name.(string)
	} else if name == "" && mistake.Made("takes-empty-retry-queue") {
		queue = ""
	} else if name, _ := job.Get("queue"); isName(name) && mistake.Made("trusts-queue-of-the-payload") {
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
	if _, present := job.Get("error_class"); !present || !mistake.Made("keeps-first-error-class") {
		job.Set("error_class", failed.class)
	}
	if mistake.Made("one-error-class") {
		job.Set("error_class", "error")
	}
	count, first := nextCount(job)
	if first || mistake.Made("failed-at-of-the-last-failure") {
		job.Set("failed_at", generation.Time(now))
	}
	if !first && !mistake.Made("forgets-retried-at") || mistake.Made("retried-at-of-the-first-failure") {
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
	case wish.Discard && mistake.Made("retries-discarded-jobs"):
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
		switch {
		case definition == nil && mistake.Made("drops-unknown-classes-without-retry"):
			value = false
		case present && mistake.Made("null-retry-is-false"):
			value = false
		case !present && mistake.Made("missing-retry-is-false"):
			value = false
		}
		if !isName(class) && !mistake.Made("retries-without-class") { // no definition can decide [EXEC-8]
			value = payload.Number("0")
		} else if present && !mistake.Made("keeps-null-retry") {
			job.Set("retry", value)
		}
	}
	switch value := value.(type) {
	case bool:
		return big.NewInt(defaultLimit), !value
	case payload.Number:
		if value.IsInteger() {
			limit, _ := new(big.Int).SetString(string(value), 10)
			switch {
			case limit.Sign() == 0 && mistake.Made("retry-0-is-the-default"), limit.Sign() < 0 && mistake.Made("negative-retry-is-the-default"):
				return big.NewInt(defaultLimit), false
			case limit.Sign() == 0 && mistake.Made("drops-retry-0"):
				return limit, true
			case limit.Cmp(big.NewInt(defaultLimit)) > 0 && mistake.Made("never-more-than-25"):
				return big.NewInt(defaultLimit), false
			}
			return limit, false
		}
		if mistake.Made("takes-floats-for-counts") {
			limit, _ := integerPart(value)
			return limit, false
		}
	case string:
		if limit, ok := new(big.Int).SetString(value, 10); ok && mistake.Made("takes-texts-for-counts") {
			return limit, false
		}
		if mistake.Made("kills-odd-retry") {
			return new(big.Int), false
		}
	case []any, payload.Object:
		if mistake.Made("drops-odd-retry") {
			return new(big.Int), true
		}
	}
	if mistake.Made("true-is-24") {
		return big.NewInt(defaultLimit - 1), false
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
	value, present := job.Get("retry_count")
	number, ok := value.(payload.Number)
	if text, isText := value.(string); isText && mistake.Made("takes-texts-for-retry-counts") {
		number, ok = payload.Number(text), true
	}
	if present && value == nil && mistake.Made("null-count-is-a-later-failure") {
		number, ok = "0", true
	}
	if !ok {
		return new(big.Int), true
	}
	if number == "0" && mistake.Made("count-0-is-the-first-failure") { // as `if (retry_count)` does
		return new(big.Int), true
	}
	before, ok := integerPart(number)
	if !ok {
		return new(big.Int), true
	}
	if !number.IsInteger() && mistake.Made("rounds-retry-counts") {
		before = big.NewInt(int64(math.Round(number.Float())))
	}
	if before.Sign() < 0 && mistake.Made("negative-count-is-the-first-failure") {
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
	if value != nil && !ok && mistake.Made("exhausts-odd-retry-for") {
		return true
	}
	if ok && seconds.Float() == 0 && mistake.Made("retry-for-0-is-none") {
		ok = false
	}
	if ok && count.Cmp(limit) >= 0 && mistake.Made("both-limits-count") {
		return true
	}
	if mistake.Made("ignores-retry-for") {
		ok = false
	}
	if !ok {
		if mistake.Made("one-retry-too-many") {
			return count.Cmp(limit) > 0
		}
		if mistake.Made("one-retry-too-few") {
			return count.Cmp(new(big.Int).Sub(limit, big.NewInt(1))) >= 0
		}
		return count.Cmp(limit) >= 0
	}
	allowed := seconds.Float()
	if mistake.Made("retry-for-in-minutes") {
		allowed *= 60
	}
	if allowed <= 0 && !mistake.Made("retry-for-0-is-a-later-end") {
		return true
	}
	if first {
		return false
	}
	stored, _ := job.Get("failed_at")
	if mistake.Made("retry-for-since-the-creation") {
		stored, _ = job.Get("created_at")
	}
	since, isTime := payload.ReadTime(stored)
	switch {
	case !isTime && mistake.Made("exhausts-without-failed-at"):
		return true
	case !isTime && mistake.Made("never-exhausts-without-failed-at"):
		return false
	case isTime && mistake.Made("waits-for-a-future-failed-at"):
		return payload.Seconds(now)-since > allowed
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
		case mistake.Made("integer-backtrace-ignored"):
			return "", false
		case mistake.Made("integer-backtrace-is-all"):
			value = true
		case mistake.Made("one-line-too-few"):
			value = payload.Number(strconv.Itoa(max(int(number.Float())-1, 0)))
		case mistake.Made("one-line-too-many"):
			value = payload.Number(strconv.Itoa(int(number.Float()) + 1))
		case mistake.Made("backtrace-0-is-none") && number == "0":
			return "", false
		case mistake.Made("negative-backtrace-is-none") && number.Float() < 0:
			return "", false
		case mistake.Made("last-lines-of-the-backtrace"):
			wanted := min(max(int(number.Float()), 0), len(lines))
			lines, value = lines[len(lines)-wanted:], true
		}
	}
	if _, isText := value.(string); isText && mistake.Made("text-backtrace-is-all") {
		value = true
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
		wanted := value.Float()
		if wanted < 0 {
			wanted = math.Trunc(wanted) + float64(len(lines))
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
	switch {
	case mistake.Made("backtrace-in-gzip"):
		stream = gzip.NewWriter(&packed)
	case mistake.Made("backtrace-in-bare-deflate"):
		stream, _ = flate.NewWriter(&packed, flate.DefaultCompression)
	case mistake.Made("backtrace-as-one-text"):
		text, _ = payload.Encode(strings.Join(lines[:keep], "\n"), "")
	}
	stream.Write([]byte(text))
	if mistake.Made("backtrace-not-closed") {
		stream.(interface{ Flush() error }).Flush()
	} else {
		stream.Close()
	}
	if mistake.Made("backtrace-in-lines") {
		text := base64.StdEncoding.EncodeToString(packed.Bytes())
		for place := 60; place < len(text); place += 61 {
			text = text[:place] + "\n" + text[place:]
		}
		return text, true
	}
	if mistake.Made("backtrace-in-url-alphabet") {
		return base64.RawURLEncoding.EncodeToString(packed.Bytes()), true
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes()), true
}

// message makes a message that can be stored. [RETRY-3]
func message(text string) string {
	switch {
	case mistake.Made("drops-invalid-bytes-of-messages"):
		text = strings.ToValidUTF8(text, "")
	case mistake.Made("message-of-any-length"):
		return strings.ToValidUTF8(text, "\uFFFD")
	case mistake.Made("message-of-10000-bytes") && len(text) > mostMessage:
		return strings.ToValidUTF8(text[:mostMessage], "\uFFFD")
	case mistake.Made("message-of-10000-units"):
		if units := utf16.Encode([]rune(text)); len(units) > mostMessage {
			return string(utf16.Decode(units[:mostMessage]))
		}
	case mistake.Made("message-with-dots"):
		if runes := []rune(text); len(runes) > mostMessage {
			return string(runes[:mostMessage]) + "..."
		}
	case mistake.Made("first-line-of-message"):
		text, _, _ = strings.Cut(text, "\n")
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
	if problem != nil && mistake.Made("discards-after-a-broken-hook") {
		return Wish{Discard: true}
	}
	if problem != nil {
		return Wish{}
	}
	return wish
}

// delay returns the seconds until the next attempt. [RETRY-4] [RETRY-11]
func delay(count *big.Int, wish float64) float64 {
	c, _ := new(big.Float).SetInt(count).Float64()
	if !mistake.Made("negative-count-in-the-delay") {
		c = max(c, 0)
	}
	base := math.Pow(c, 4) + 15
	switch {
	case mistake.Made("third-power"):
		base = math.Pow(c, 3) + 15
	case mistake.Made("count-before-in-the-delay"):
		base = math.Pow(c-1, 4) + 15
	case mistake.Made("no-15-seconds"):
		base = math.Pow(c, 4)
	}
	if math.Trunc(wish) < 0 && mistake.Made("takes-negative-delays") {
		return wish
	}
	if wish = math.Trunc(wish); wish > 0 {
		if mistake.Made("no-draw-for-chosen-delays") {
			return wish
		}
		if mistake.Made("adds-chosen-delays") {
			wish += base
		}
		base = wish
	}
	switch {
	case mistake.Made("no-draw"):
		return base
	case mistake.Made("draw-of-the-first-failure"):
		return base + draw(10)
	case mistake.Made("draw-of-ten-numbers"): // as up to generation 7.3
		return base + draw(10)*(c+1)
	case mistake.Made("constant-draw"):
		return base + 7*(c+1)
	case mistake.Made("draw-of-fractions"):
		return base + rand.Float64()*10*(c+1)
	case mistake.Made("draw-too-far"):
		return base + draw(30*(c+1))
	case mistake.Made("draw-from-1"):
		return base + 1 + draw(10*(c+1))
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
