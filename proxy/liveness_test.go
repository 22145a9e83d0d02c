package proxy

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/signals"
)

// TestStalledEngineIsFoundByProgress: it accepts and never answers, and its health
// is good. What waits for it goes elsewhere.
func TestStalledEngineIsFoundByProgress(t *testing.T) {
	g := &gate{}
	h := newHarnessWith(t, config.Proxy{RetryBudget: 0.2, StallAfter: config.Duration(10 * time.Second)}, g.ServeHTTP, answers("other"))
	var stuck []*call
	for i := 0; len(stuck) < 3; i++ {
		c := h.start(stream, "X-Session-Id", fmt.Sprint("s", i))
		until(t, "it is held, or was answered", func() bool {
			n, _ := g.count()
			select {
			case <-c.done:
				return true
			default:
				return n > len(stuck)
			}
		})
		if n, _ := g.count(); n > len(stuck) {
			stuck = append(stuck, c)
		}
	}
	// One second is predicted, so that fifteen of silence are too many.
	h.plane.sweep(time.Now().Add(14 * time.Second))
	require.Equal(t, int64(3), h.inFlight())
	h.plane.sweep(time.Now().Add(16 * time.Second))
	for _, c := range stuck {
		<-c.done
		require.NoError(t, c.err)
		require.Equal(t, "other", c.body)
		d := h.decision(c.header)
		require.Equal(t, "stalled", d.Attempts[0].Outcome)
		require.Equal(t, errStalled.Error(), d.Attempts[0].Error)
		require.Equal(t, "success", d.Attempts[1].Outcome)
	}
	require.True(t, h.plane.table.Load().rows["m"].Targets()[0].Flight.PassedOver())
	until(t, "the engine was told", func() bool { _, gone := g.count(); return gone == 3 })
	h.requireIdle()
	h.plane.sweep(time.Now().Add(time.Hour))
	require.False(t, h.plane.table.Load().rows["m"].Targets()[1].Flight.PassedOver(), "an idle engine owes no sign of life")
}

const stream = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`

// TestLongAnswerIsNoStall: an answer that comes whole is silent until it is whole.
// Only an engine whose own counters stand still meanwhile is a black hole.
func TestLongAnswerIsNoStall(t *testing.T) {
	g := &gate{}
	h := newHarnessWith(t, config.Proxy{RetryBudget: 0.2, StallAfter: config.Duration(10 * time.Second)}, g.ServeHTTP, answers("other"))
	var c *call
	for i := 0; ; i++ {
		c = h.start(chat, "X-Session-Id", fmt.Sprint("s", i))
		until(t, "it is held, or was answered", func() bool {
			n, _ := g.count()
			select {
			case <-c.done:
				return true
			default:
				return n > 0
			}
		})
		if n, _ := g.count(); n > 0 {
			break
		}
	}
	passed := h.plane.table.Load().rows["m"].Targets()[0].Flight.PassedOver
	read := func(at time.Time, progress float64) {
		h.plane.progressed(signals.State{Engine: "e0", Signal: &signals.Signal{Time: at, Values: signals.Values{Progress: signals.Some(progress)}}})
	}
	now := time.Now()
	h.plane.sweep(now.Add(time.Hour))
	require.True(t, passed(), "nobody knows better, so others are asked")
	require.False(t, closed(c.done), "and it is left to work")
	row := h.plane.table.Load().rows["m"]
	row.Targets()[0].Flight.Recovered(now.Add(3 * time.Hour).UnixNano())
	for second := range 100 {
		at := now.Add(time.Hour + time.Duration(second)*time.Second)
		read(at, float64(second))
		h.plane.sweep(at)
	}
	require.False(t, passed(), "it works")
	for second := range 20 {
		at := now.Add(2*time.Hour + time.Duration(second)*time.Second)
		read(at, 100)
		h.plane.sweep(at)
	}
	require.True(t, passed(), "it stands still")
	<-c.done
	require.NoError(t, c.err)
	require.Equal(t, "other", c.body)
}

// TestStalledEngineIsFoundThoughClientsGiveUp: none waits as long as it takes to
// be sure, but together they have.
func TestStalledEngineIsFoundThoughClientsGiveUp(t *testing.T) {
	var p pulse
	at := int64(time.Hour)
	wait := func(seconds int64) {
		a := &attempt{sent: time.Unix(0, at), stream: true}
		p.wait(a)
		at += seconds * int64(time.Second)
		p.leave(a, at)
		at += int64(time.Minute) // nobody asks
	}
	for range 4 {
		wait(3)
	}
	require.Equal(t, 12*time.Second, time.Duration(p.streams.owed), "the time in which somebody waited, no other")
	p.beat(at)
	a := &attempt{sent: time.Unix(0, at), stream: true}
	p.wait(a)
	p.beat(at + 1)
	p.leave(a, at+2)
	require.Zero(t, p.streams.owed, "a byte of any answer clears it")

	g := &gate{}
	h := newHarnessWith(t, config.Proxy{StallAfter: config.Duration(10 * time.Second)}, g.ServeHTTP)
	h.start(stream)
	until(t, "it arrived", func() bool { n, _ := g.count(); return n == 1 })
	h.plane.sweep(time.Now())
	require.Zero(t, h.plane.memory.engine("e0").outlier.Penalty(time.Now().UnixNano()))
	h.plane.memory.engine("e0").pulse.streams.owed = int64(16 * time.Second)
	h.plane.sweep(time.Now())
	require.Positive(t, h.plane.memory.engine("e0").outlier.Penalty(time.Now().UnixNano()))
}
