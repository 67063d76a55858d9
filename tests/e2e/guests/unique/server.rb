# server.rb PORT: answers values of every generator of Ruby, "name=value" pairs; those named own_ were seeded on purpose.
require "securerandom"
require "socket"
require "tmpdir"

OWN = Random.new(42)
UNSEEDED = Random.new

def answer
  values = {
    pid: Process.pid, rand: rand, random: Random.rand(1 << 62), bytes: Random.bytes(8).unpack1("H*"), instance: UNSEEDED.rand,
    shuffle: (0...30).to_a.shuffle.join(","), uuid: SecureRandom.uuid, temp: Dir::Tmpname.create("unique") { |path| path }, own: OWN.rand
  }
  values.map { |name, value| "#{name}=#{value}" }.join(" ")
end

answer
server = TCPServer.new("127.0.0.1", ARGV[0].to_i)
loop do
  client = server.accept
  if client.gets
    text = answer
    client.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: #{text.bytesize}\r\n\r\n#{text}")
  end
  client.close
end
