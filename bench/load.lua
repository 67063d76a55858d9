-- For wrk: 20 functions f00 to f19 in turn by chance, each of which answers with its own name; f07 is asked to crash.
-- Every answer is checked. What wrk itself counts as an error (a connection that breaks, a time-out) is lost.
local threads = {}

function setup(thread)
   thread:set("number", #threads)
   table.insert(threads, thread)
end

function init(args)
   math.randomseed(os.time() + number)
   right, wrong, crashed, first = 0, 0, 0, ""
   sent = {}
end

function request()
   local name = string.format("f%02d", math.random(0, 19))
   sent[name] = (sent[name] or 0) + 1
   return wrk.format("GET", name == "f07" and "/crash" or "/", {Host = name .. ".localhost"})
end

function response(status, headers, body)
   local name = body:match("^Hello%-(f%d%d)\n$")
   if status == 200 and name and name ~= "f07" then
      right = right + 1
      sent[name] = sent[name] - 1
   elseif status == 502 and body:find('"program-failed"', 1, true) and body:find('logs f07', 1, true) then
      crashed = crashed + 1
   else
      wrong = wrong + 1
      first = string.format("status %d: %s", status, body:sub(1, 200))
   end
end

function done(summary, latency, requests)
   local sums = {right = 0, wrong = 0, crashed = 0, crossed = 0}
   for _, thread in ipairs(threads) do
      -- More answers of a function than requests to it: they went to others.
      for _, open in pairs(thread:get("sent")) do sums.crossed = sums.crossed + math.max(0, -open) end
      for name in pairs(sums) do
         if name ~= "crossed" then sums[name] = sums[name] + thread:get(name) end
      end
      if (thread:get("first") or "") ~= "" then io.write("wrong: ", thread:get("first"), "\n") end
   end
   local errors = summary.errors
   io.write(string.format("wrk: %d right, %d wrong, %d of another function, %d crashed as asked; lost: %d connect, %d read, %d write, %d timeout; ",
      sums.right, sums.wrong, sums.crossed, sums.crashed, errors.connect, errors.read, errors.write, errors.timeout))
   io.write(string.format("%.0f requests/s, p50 %.2f ms, p99 %.2f ms\n", summary.requests / summary.duration * 1e6,
      latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
