-- The script decides calls one after the other, and charges the takes of each as
-- backend.Settle does: the arithmetic is that of package backend, operation for operation.
-- The files of the algorithms say what the value of a bucket is.
--
-- KEYS[i]  the bucket of take i, over all calls; on a cluster all of one slot.
--
-- ARGV[1]  little-endian doubles, first:
--            now      microseconds since 1970; 0: Redis' own time. Only tests give one,
--                     and what they write lives an hour longer, since Redis expires by
--                     its own clock.
--          then of each call:
--            takes    their number
--            partial  1 if the call has takes in other scripts too: quota takes deny
--                     nothing here and nothing is given back, both being decided once all
--                     have answered.
--          and of each of its takes:
--            algorithm  0 token bucket, 1 leaky bucket, 2 fixed window, 3 sliding window,
--                       4 sliding log
--            requests   tokens that come back per period
--            period     microseconds
--            capacity   tokens that a full bucket has
--            hits       tokens to take, at most 2^53
--            give       tokens to put back, at most 2^53
--            mode       0 enforce, 1 shadow, 2 quota
--            overflow   0 reject, 1 debt, 2 auto
--            lease      1 if the take has a lease; then ten more, the fields of
--                       backend.Lease: want, held, back, counted, generation, asked,
--                       demand, fraction, scarce, calls
--
-- Reply    little-endian doubles, of each take:
--            state    1 if OK, plus 2 if the charge was taken as a debt
--            charged  tokens taken
--            level    tokens after the call
--            wait     microseconds until the same take could be paid; 0 if OK
--            full     microseconds until the bucket is full
--            granted  tokens handed out on lease        } 0 without a lease
--            share    of all hits asked for lately      }
--            generation  in which they are counted      }
--
-- A bucket expires when it is as if nobody had touched it, at most ten years on.
--
-- A call that is plain (see plain.lua) is shorter: 0 in place of takes, then requests,
-- period, capacity and hits.

local reply, last, decide = {}, 0, nil
while last < #KEYS do
  local count, requests, period, capacity, hits, after = unpack('<ddddd', input, offset)
  if count == 0 then
    offset = after
    last = last + 1
    reply[last] = plain(KEYS[last], requests, period, capacity, hits)
  else
    decide = decide or others()
    offset = offset + 8
    decide(count, last, reply)
    last = last + count
  end
end
return table.concat(reply)
