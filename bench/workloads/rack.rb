# frozen_string_literal: true

require "erb"
require "json"

# A web application through its whole stack, from the client's cookie jar to the template, without sockets: layers of
# middleware, forty routes, a controller with callbacks, parameters from a JSON body, a view with partials, an ETag.

module Bench
  # As a framework would build it, in small.
  module WebApplication
    # One layer, as most are: something before, something after.
    class Layer
      def initialize(app, name)
        @app = app
        @name = name
      end

      def call(env)
        around(env) { @app.call(env) }
      end

      private

      def around(env)
        env["layer.#{@name}"] = @name
        status, headers, body = yield
        [status, headers.merge("x-#{@name}" => "passed"), body]
      end
    end

    # Patterns in their order, as routers try them.
    class Router
      def initialize
        @routes = []
        yield self
      end

      def draw(verb, path, &action)
        pattern = path.gsub(/:(\w+)/) { "(?<#{Regexp.last_match(1)}>[^/]+)" }
        @routes << [verb, /\A#{pattern}\z/, action]
      end

      def call(env)
        request = Rack::Request.new(env)
        @routes.each do |verb, pattern, action|
          match = pattern.match(request.path_info) if verb == request.request_method
          return action.call(request, match.named_captures) if match
        end
        [404, { "content-type" => "text/plain" }, ["not found"]]
      end
    end

    # Callbacks around an action, and a view.
    class Controller
      CALLBACKS = %i[authenticate load_locale load_article instrument].freeze
      LAYOUT = ERB.new("<html><body><%= yield %></body></html>")
      ARTICLE = ERB.new("<h1><%= @article[:title] %></h1>" \
                        "<% @article[:tags].each do |tag| %><%= partial(tag) %><% end %>")
      TAG = ERB.new("<a href=\"/tags/<%= tag %>\"><%= ERB::Util.html_escape(tag) %></a>")
      LAYOUT.def_method(self, "layout()")
      ARTICLE.def_method(self, "article()")
      TAG.def_method(self, "partial(tag)")

      def initialize(request, captures)
        @request = request
        @parameters = captures.merge(request.params)
        @parameters.merge!(JSON.parse(request.body.read)) if request.media_type == "application/json"
      end

      def process
        run_callbacks(CALLBACKS) { render }
      end

      private

      def run_callbacks(names, &action)
        return action.call if names.empty?

        send(names.first) { run_callbacks(names.drop(1), &action) }
      end

      def authenticate
        @user = { id: @request.cookies.fetch("user", "0").to_i }
        yield
      end

      def load_locale
        @locale = @request.get_header("HTTP_ACCEPT_LANGUAGE").to_s.split(",").first
        yield
      end

      def load_article
        @article = { title: "Article #{@parameters["id"]}", tags: Array(@parameters["tags"]) + %w[ruby web memory] }
        yield
      end

      def instrument
        start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        yield.tap { @elapsed = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start }
      end

      def render
        [200, { "content-type" => "text/html" }, [layout { article }]]
      end
    end

    def self.build
      router = Router.new do |routes|
        20.times { |i| routes.draw("GET", "/resource#{i}/:id") { [200, {}, []] } }
        20.times { |i| routes.draw("POST", "/resource#{i}") { [201, {}, []] } }
        routes.draw("POST", "/articles/:id/tags") { |request, captures| Controller.new(request, captures).process }
      end
      Rack::Builder.app do
        use Rack::Runtime
        use Rack::MethodOverride
        use Rack::Head
        use Rack::ConditionalGet
        use Rack::ETag
        use Rack::ContentLength
        20.times { |i| use Layer, "layer#{i}" }
        run router
      end
    end
  end

  Workloads.define("Rack", depth: 20, gems: %w[rack rack-test]) do
    require "rack"
    require "rack/test"

    client = Rack::Test::Session.new(WebApplication.build)
    client.set_cookie("user=42")
    client.header("Accept-Language", "it,en")
    body = JSON.generate("tags" => %w[profile heap])
    lambda do
      5.times do |i|
        client.post("/articles/#{i}/tags?page=#{i}", body, "CONTENT_TYPE" => "application/json")
        client.last_response.ok? or raise "the application answered #{client.last_response.status}"
      end
    end
  end
end
