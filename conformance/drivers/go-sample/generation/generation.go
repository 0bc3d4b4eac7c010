// Package generation chooses the form of times for a fleet.
package generation

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"gosample/mistake"
	"gosample/payload"
	"gosample/redis"
)

// lookAgain is how long the answer of a look at the processes is used. [GEN-7]
const lookAgain = 60 * time.Second

// Choice is a fixed generation, or with Fixed 0 the one that suits all readers ("auto").
type Choice struct {
	Fixed payload.Generation
	Pool  *redis.Pool

	mutex  sync.Mutex
	chosen payload.Generation
	looked time.Time
}

// Parse reads a setting: "7", "8" or "auto".
func Parse(setting string, pool *redis.Pool) *Choice {
	fixed, _ := strconv.Atoi(setting)
	return &Choice{Fixed: payload.Generation(fixed), Pool: pool}
}

// Now returns the generation to write. Where the processes cannot be read, it is 7, which all
// readers understand.
func (c *Choice) Now() payload.Generation {
	if c.Fixed != 0 {
		return c.Fixed
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.chosen == 0 || time.Since(c.looked) >= lookAgain {
		c.chosen, c.looked = 8, time.Now()
		if c.oldSidekiq() != mistake.Made("auto-the-wrong-way-round") {
			c.chosen = 7
		}
	}
	return c.chosen
}

// oldSidekiq reports whether a process of a Sidekiq before 8 is registered. [GEN-5]
func (c *Choice) oldSidekiq() bool {
	reply, err := c.Pool.Do("SMEMBERS", "processes")
	if err != nil {
		return true
	}
	identities, _ := reply.([]any)
	for _, identity := range identities {
		reply, err := c.Pool.Do("HGET", identity.(string), "info")
		text, present := reply.(string)
		if err != nil || !present {
			continue
		}
		var info struct{ Version *string }
		if json.Unmarshal([]byte(text), &info) != nil {
			continue // not written by Sidekiq
		}
		if info.Version == nil {
			return true
		}
		version := *info.Version
		major := version[:len(version)-len(strings.TrimLeft(version, "0123456789"))]
		if number, err := strconv.Atoi(major); err == nil && number < 8 {
			return true
		}
	}
	return false
}
